"""Train one model across organisations that may not see each other's data, with nobody in the
middle."""

from eris.callbacks import EarlyStopping
from eris.core.rules import server_rule
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.runtimes.faults import FaultPlan
from eris.session import Fit, RoundRecord
from eris.training.trainer import LocalUpdate, Trainer

__all__ = [
    "ERIS",
    "EarlyStopping",
    "FaultPlan",
    "FedAvg",
    "Federation",
    "Fit",
    "LocalUpdate",
    "RoundRecord",
    "Trainer",
    "__version__",
    "server_rule",
]
__version__ = "0.1.0"
