"""Estimates of a client's full gradient from batches: plain, SVRG and SAGA, which ERIS names.

All are unbiased over a uniformly drawn batch B, at any model y and whatever is remembered:

    plain   ∇f_B(y)
    SVRG    ∇f_B(y) − ∇f_B(x̃) + ∇f(x̃)                    (Johnson and Zhang, 2013)
    SAGA    mean_{i∈B}(∇f_i(y) − t_i) + mean_i t_i, then t_i ← ∇f_i(y) for i in B
                                                          (Defazio, Bach and Lacoste-Julien, 2014)

SVRG's snapshot x̃ is the model a round starts from, renewed after ``refresh`` rounds; SAGA's table t
starts with the gradients of all samples at the client's first model. The variance of both vanishes
as y, x̃ and the table's models reach one point; the plain batch's does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from eris.training.gradients import Chosen, ClientGradients
from eris.training.memory import Memory
from eris.training.options import LocalTraining


@dataclass(frozen=True)
class Plain:
    """The gradient of the batch."""

    def lengths(self, parameters: int, samples: int) -> dict[str, int]:
        """What is remembered between steps, and how long each vector is: nothing."""
        return {}

    def begin(
        self, position: Tensor, round: int, gradients: ClientGradients, memory: Memory
    ) -> None:
        """Prepare for a round that starts at ``position``: nothing to do."""

    def estimate(
        self, position: Tensor, chosen: Chosen, gradients: ClientGradients, memory: Memory
    ) -> tuple[Tensor, float]:
        """A gradient at ``position`` from the chosen samples, and their mean loss."""
        return gradients.mean(position, chosen)


@dataclass(frozen=True)
class Svrg:
    """Stochastic variance-reduced gradients around a snapshot of the model."""

    refresh: int

    def lengths(self, parameters: int, samples: int) -> dict[str, int]:
        """The snapshot, the full gradient there, and the round it was taken in."""
        return {"snapshot": parameters, "snapshot_gradient": parameters, "snapshot_round": 1}

    def begin(
        self, position: Tensor, round: int, gradients: ClientGradients, memory: Memory
    ) -> None:
        """Take a snapshot if there is none or its time is over."""
        if memory and 0 <= round - int(memory["snapshot_round"]) < self.refresh:
            return
        memory["snapshot"] = position.clone()
        memory["snapshot_gradient"], _ = gradients.mean(position, None)
        memory["snapshot_round"] = position.new_tensor([round])

    def estimate(
        self, position: Tensor, chosen: Chosen, gradients: ClientGradients, memory: Memory
    ) -> tuple[Tensor, float]:
        """The batch's gradient, corrected by what the batch gets wrong at the snapshot."""
        there, _ = gradients.mean(memory["snapshot"], chosen)
        here, loss = gradients.mean(position, chosen)
        return here.sub_(there).add_(memory["snapshot_gradient"]), loss


@dataclass(frozen=True)
class Saga:
    """A table of every sample's last gradient: samples × parameters numbers at the client."""

    def lengths(self, parameters: int, samples: int) -> dict[str, int]:
        """The table, row by row."""
        return {"gradient_table": samples * parameters}

    def begin(
        self, position: Tensor, round: int, gradients: ClientGradients, memory: Memory
    ) -> None:
        """Fill the table once, at the first model the client sees."""
        if not memory:
            memory["gradient_table"] = gradients.each(position, None)[0].reshape(-1)

    def estimate(
        self, position: Tensor, chosen: Chosen, gradients: ClientGradients, memory: Memory
    ) -> tuple[Tensor, float]:
        """The table's mean, corrected by what is new in the batch; the batch's rows are renewed."""
        table = memory["gradient_table"].view(len(gradients), -1)
        rows, loss = gradients.each(position, chosen)
        places = slice(None) if chosen is None else chosen
        estimate = rows.sub(table[places]).mean(dim=0).add_(table.mean(dim=0))
        table[places] = rows
        return estimate, loss


GradientEstimator = Plain | Svrg | Saga
"""An estimator's settings and its arithmetic."""


def gradient_estimator(options: LocalTraining) -> GradientEstimator:
    """The estimator that the options name.

    >>> gradient_estimator(LocalTraining(learning_rate=0.1, estimator="svrg", refresh=5))
    Svrg(refresh=5)
    """
    if options.estimator == "svrg":
        return Svrg(options.refresh)
    return Saga() if options.estimator == "saga" else Plain()
