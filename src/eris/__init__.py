"""Train one model across organisations that may not see each other's data, with nobody in the
middle."""

from eris.federation import Federation, Fit, RoundRecord
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg

__all__ = ["ERIS", "FedAvg", "Federation", "Fit", "RoundRecord", "__version__"]
__version__ = "0.1.0"
