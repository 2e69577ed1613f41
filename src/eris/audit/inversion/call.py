"""One observed update, and the samples behind it: the inversions as a plain call."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from eris.audit.call import ONLY, ByClient, Given, Values, numbered, of_client
from eris.audit.inversion.cosine import Cosine
from eris.audit.inversion.dlg import Dlg
from eris.audit.inversion.ggl import Ggl
from eris.audit.inversion.idlg import Idlg
from eris.audit.inversion.matching import Matching, Mode
from eris.audit.inversion.rog import Rog
from eris.audit.inversion.search import Inversion, Inverted, SearchBudget, Tell, search
from eris.audit.inversion.simulation import Simulation
from eris.core.errors import InvalidSetting, one_of
from eris.training.flat import FlatParameters
from eris.training.gradients import Loss
from eris.training.options import RunningStatistics

INVERSIONS: Mapping[str, type[Dlg] | type[Idlg] | type[Cosine] | type[Rog] | type[Ggl]] = {
    kind.name: kind for kind in (Dlg, Idlg, Cosine, Rog, Ggl)
}
"""The attacks by name."""


def inversion(name: str) -> Inversion:
    """An attack with its usual settings, and without a network that was trained for it."""
    if name not in INVERSIONS:
        raise InvalidSetting("attack", name, one_of([*INVERSIONS], name))
    return INVERSIONS[name]()


def invert(
    model: nn.Module,
    loss: Loss,
    update: Values | ByClient,
    *,
    shape: Sequence[int],
    mask: Values | ByClient | None = None,
    attack: str | Inversion = "idlg",
    mode: Mode = "mask-aware",
    samples: int = 1,
    labels: ArrayLike | None = None,
    box: tuple[Tensor | float, Tensor | float] = (0.0, 1.0),
    steps: int = 1,
    learning_rate: float | None = None,
    sent: Literal["update", "weights"] = "update",
    budget: SearchBudget | None = None,
    running_statistics: RunningStatistics = "refuse",
    seed: int = 0,
    tell: Tell = lambda share: None,
) -> Inverted:
    """Reconstruct a client's samples from what was seen of its update.

    ``model`` is at the weights that the client started from, and is not changed. ``update`` is the
    direction that it sent, as a gradient is one, or with ``sent="weights"`` its new weights. Of a
    mapping by parameters' names, what is not named was not seen; nor what ``mask`` has as false.
    Updates of several clients, which are attacked together, come as a mapping from their numbers
    (``mask`` may too).

    The client has ``samples`` samples of ``shape`` between the two ends of ``box``, and made
    ``steps`` steps of ``learning_rate`` with all of them. An update of several steps is
    (weights before − weights after)/``learning_rate``. ``labels`` are given by an attacker who
    knows them, a row a client.

    ``attack`` is ``dlg``, ``idlg``, ``cosine`` or ``rog``, or one with other settings, as
    ``Rog(network)`` with an enhancement network for such samples, or ``Ggl(generator)``;
    ``budget`` says how much it spends. Beside what was found is the control: what the same attack
    finds in noise.

    >>> model, loss = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), nn.functional.cross_entropy
    >>> sample, label = torch.tensor([[[[0.2, 0.9], [0.5, 0.1]]]]), torch.tensor([2])
    >>> pieces = torch.autograd.grad(loss(model(sample), label), list(model.parameters()))
    >>> found = invert(model, loss, torch.cat([p.flatten() for p in pieces]), shape=(1, 2, 2))
    >>> found.labels.tolist(), [round(x, 2) for x in found.inputs.flatten().tolist()]
    ([[2]], [0.2, 0.9, 0.5, 0.1])
    """
    if steps < 1:
        raise InvalidSetting("steps", steps, "at least 1")
    if steps > 1 and learning_rate is None:
        expected = f"a number: {steps} local steps can be unrolled only with their step size"
        raise InvalidSetting("learning_rate", None, expected)
    flat = FlatParameters(copy.deepcopy(model), running_statistics)
    flat.module.eval()
    given = Given(flat, sent, learning_rate)
    values, seen = [], []
    clients = sorted(cast(ByClient, update)) if numbered(update) else [ONLY]
    for client in clients:
        its = None if mask is None else of_client(mask, client)
        pieces = given.pieces(of_client(update, client), its, None)
        row, places = np.zeros(len(flat), np.float32), np.zeros(len(flat), np.bool_)
        row[pieces.coordinates], places[pieces.coordinates] = pieces.update, True
        values.append(row[: flat.trained])
        seen.append(places[: flat.trained])
    position = flat.read()[: flat.trained]
    simulation = Simulation(flat, loss, position, steps, learning_rate or 1.0)
    matching = Matching(
        simulation, torch.from_numpy(np.stack(values)), torch.from_numpy(np.stack(seen)),
        tuple(shape), samples, *box, mode,
    )  # fmt: skip
    known = None
    if labels is not None:
        known = torch.as_tensor(labels).long().reshape(-1, samples)
        if len(known) != len(matching):
            expected = f"{len(matching)} rows, one an update, of {samples}"
            raise InvalidSetting("labels", f"{len(known)} rows", expected)
    chosen = inversion(attack) if isinstance(attack, str) else attack
    return search(chosen, matching, budget, labels=known, seed=seed, tell=tell)
