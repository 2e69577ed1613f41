"""All clients of a simulation with one model in PyTorch, many of them trained in one pass.

Where model and options allow it, the gradients of many clients come from one forward and one
backward pass (``fast.shared``, ``fast.stacked``); otherwise clients train one after another as
``TorchTrainer`` does. Either way a client computes what its own trainer would, and what clients
keep between rounds can be carried from one way to the other. An update differs from the plain
loop's by rounding, about 3·10⁻⁷ and at most 10⁻⁵ of its norm, unless rounding carries an activation
across the kink of a ReLU or of max pooling: then it differs as the loop's own does from a model
changed in its last bit, by some 10⁻⁴.

Which way is taken depends on the settings, the model, the first samples of the first two clients
and what a check of real passes finds (``fast.check``), never on how long anything takes. The fast
path does not use PyTorch's own threads. Who shares a pass follows from the clients' numbers and
sizes and from who takes part, not from ``threads`` and not from which process hosts whom: clients
are in fixed lanes, passes never cross them, and an engine keeps a lane together.
"""

from __future__ import annotations

import copy
import logging
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Literal, Unpack, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Indices, Vector
from eris.training.augmentation import check_augmentation
from eris.training.fast.check import is_checked, is_wrong
from eris.training.fast.gradients import GroupGradients, class_numbers
from eris.training.fast.passes import Passes, Trainee
from eris.training.fast.probe import Probe, probe
from eris.training.fitting import check_fit
from eris.training.flat import FlatParameters
from eris.training.given import Samples, as_tensors
from eris.training.gradients import Loss
from eris.training.memory import Memory
from eris.training.options import LocalTraining, TrainerSettings, at_least_one, one_of
from eris.training.population import Models
from eris.training.torch import TorchTrainer, single_threaded
from eris.training.trainer import Batch, LocalUpdate, PerSampleClip, PerSampleNoise

Path = Literal["auto", "loop", "fast"]
"""``fast``: many clients in one pass. ``loop``: one after another. ``auto``: fast if it helps."""

PASS_BYTES = 12 << 20
"""Activations in a pass: enough clients to spread the cost of calling PyTorch, few enough that a
layer finds in the cache what the layer before it wrote."""

VECTORS = 5
"""Vectors of the model's length that a client needs in a pass: its model, its gradient twice (by
parameter and joined), its update and its momentum."""

MOST_LANES = 8
IN_A_LANE = 12
"""Clients that are enough to spread the cost of calling PyTorch; so many that eight lanes are full
are dealt to eight."""

FEW = 8
"""Populations up to this size are trained one by one without a word."""

log = logging.getLogger("eris.training")


class TorchPopulation:
    """Clients that share a model's architecture, a loss, and how they train.

    ``parts[k]`` are the places of client k's samples in ``inputs`` and ``targets``; it is asked for
    when the client trains, so a sequence may compute them. ``model`` is not changed. ``settings``
    are those of ``LocalTraining``.

    ``path`` says how to train. With ``auto``, a model or an option that cannot be trained in one
    pass is trained one client after another, which is logged once; with ``fast`` it is refused.
    ``threads`` passes run side by side, each with about ``memory_budget_mib`` at most.

    >>> images, labels = torch.eye(4), torch.arange(4)
    >>> clients = TorchPopulation(
    ...     nn.Linear(4, 4), images, labels, [np.array([0, 1]), np.array([3])], learning_rate=0.1
    ... )
    >>> model = np.zeros(20, np.float32)
    >>> [(update.samples, update.vector[-4:]) for update in clients.updates([1], model, round=0)]
    [(1, array([ 0.25,  0.25,  0.25, -0.75], dtype=float32))]
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Samples,
        targets: Tensor | ArrayLike | None,
        parts: Sequence[Indices],
        *,
        path: Path = "auto",
        threads: int = 1,
        memory_budget_mib: int = 256,
        loss: Loss = functional.cross_entropy,
        **settings: Unpack[TrainerSettings],
    ) -> None:
        self._inputs, self._targets = as_tensors(inputs, targets)
        one_of("path", path, ("auto", "loop", "fast"))
        at_least_one("threads", threads)
        at_least_one("memory_budget_mib", memory_budget_mib)
        if len(parts) == 0:
            raise InvalidSetting("parts", "empty", "at least one client")
        self._options = LocalTraining(**settings)
        self._settings, self._loss = settings, loss
        self._parts = parts
        self._threads, self._budget = threads, memory_budget_mib << 20
        self._flat = FlatParameters(copy.deepcopy(model), self._options.running_statistics)
        check_augmentation(self._options, self._inputs)
        check_fit(self._flat, self._inputs, self._targets, loss)
        self._start: Vector = self._flat.read().cpu().numpy()
        self._memories: dict[int, dict[str, Vector]] = {}
        self.apart: int | None = None
        """The round after which clients train one after another because a pass was wrong."""
        gradients = GroupGradients(self._flat, loss, class_numbers(self._targets))
        self._passes = Passes(gradients, self._inputs, self._targets, self._options)
        self._probe = self._choose(path)
        # An even number, so that two cores finish together.
        shared = 2 * min(MOST_LANES // 2, max(1, len(parts) // (2 * IN_A_LANE)))
        self.lanes = len(parts) if self._probe.obstacle is not None else shared
        """Client k is in lane k mod ``lanes``; only clients of one lane are trained together."""

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def obstacle(self) -> str | None:
        """Why clients are trained one after another; None where they are trained together."""
        if self.apart is not None:
            return f"in round {self.apart} a pass of several clients differed from the plain loop"
        return self._probe.obstacle

    def train_apart(self, after: int) -> None:
        """Train clients one after another in all later rounds."""
        self.apart = after if self.apart is None else min(self.apart, after)

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of what travels, in its order."""
        return self._flat.layout

    @property
    def learning_rate(self) -> float:
        """The step of the clients."""
        return self._options.learning_rate

    def initial(self) -> Vector:
        """The model that the module held when the population was made of it."""
        return self._start.copy()

    def evaluate(self, client: int, model: Vector) -> Mapping[str, float]:
        """How well a model does on a client's own samples."""
        trainer = self._trainer(client)
        trainer.restore(self._memories.get(client, {}))
        return cast(Mapping[str, float], trainer.evaluate(model))

    @property
    def uses_of_a_sample(self) -> int:
        """How many steps of a round may use one sample."""
        return self._options.uses_of_a_sample

    def updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        noise: PerSampleNoise | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients in this order, each once it is ready."""
        for client in clients:
            if not 0 <= client < len(self):
                raise InvalidSetting("client", client, f"a number from 0 to {len(self) - 1}")
        if not isinstance(models, np.ndarray) and len(models) != len(clients):
            raise InvalidSetting("models", f"{len(models)} of them", f"{len(clients)}, one each")
        # A client asked for twice goes on from its own first update.
        twice = len(set(clients)) < len(clients)
        apart = self.apart is not None and round > self.apart
        if apart or self._probe.obstacle is not None or noise is not None or twice:
            return self._one_by_one(clients, models, round, noise)
        return _in_order(self._together(clients, models, round))

    def check_clipping(self, model: Vector, *, packed: bool = False) -> None:
        """Refuse, before the first round, training whose samples cannot be bounded one by one; of
        the first client, for all have one model and one way to train."""
        self._trainer(0).check_clipping(model, packed=packed)

    def clipped_updates(
        self,
        clients: Sequence[int],
        models: Models,
        round: int,
        clip: PerSampleClip,
        batches: Sequence[Batch] | None = None,
    ) -> Iterator[LocalUpdate]:
        """The updates of these clients, one after another, each with its ``content``."""
        for position, client in enumerate(clients):
            model = models if isinstance(models, np.ndarray) else models[position]
            own = clip if batches is None else replace(clip, batch=batches[position])
            yield self._trainer(client).clipped_update(model, round, own)

    def state(self) -> dict[str, Vector]:
        """What clients keep between rounds, named "client/what", and ``apart`` as "all/apart"."""
        apart = {} if self.apart is None else {"all/apart": np.array([self.apart], np.float32)}
        return apart | {
            f"{client}/{name}": value.copy()
            for client, memory in sorted(self._memories.items())
            for name, value in memory.items()
        }

    def restore(self, state: Mapping[str, Vector]) -> None:
        """Continue from a ``state()``, of this class or of ``Trainers`` over the same clients."""
        kept: dict[int, dict[str, Vector]] = {}
        apart = None
        for key, value in state.items():
            number, _, name = key.partition("/")
            if key == "all/apart":
                apart = int(value[0])
                continue
            if not number.isdecimal() or int(number) >= len(self) or not name:
                expected = f"'client/what' of clients 0 to {len(self) - 1}"
                raise InvalidSetting("name in the state", key, expected)
            kept.setdefault(int(number), {})[name] = value.copy()
        for client, memory in kept.items():
            self._trainer(client).restore(memory)  # refuses what does not fit
        self._memories, self.apart = kept, apart

    # -- one after another --------------------------------------------------------------------

    def _one_by_one(
        self, clients: Sequence[int], models: Models, round: int, noise: PerSampleNoise | None
    ) -> Iterator[LocalUpdate]:
        for position, client in enumerate(clients):
            model = models if isinstance(models, np.ndarray) else models[position]
            update, memory = self._alone(client, model, round, noise)
            self._keep(client, memory)
            yield update

    def _alone(
        self, client: int, model: Vector, round: int, noise: PerSampleNoise | None = None
    ) -> tuple[LocalUpdate, dict[str, Vector]]:
        """A client's update by the plain loop, and what it would keep."""
        trainer = self._trainer(client)
        trainer.restore(self._memories.get(client, {}))
        if noise is None:
            return trainer.update(model, round), trainer.state()
        return trainer.private_update(model, round, noise), trainer.state()

    def _trainer(self, client: int) -> TorchTrainer:
        part = torch.from_numpy(self._part(client))
        return TorchTrainer(
            self._flat.module,
            self._inputs[part],
            self._targets[part],
            loss=self._loss,
            client=client,
            **self._settings,
        )

    def _part(self, client: int) -> Indices:
        part = np.asarray(self._parts[client], dtype=np.int64)
        if part.ndim != 1 or len(part) == 0:
            raise InvalidSetting(
                f"part of client {client}", f"of shape {part.shape}", "at least one sample's place"
            )
        return part

    def _keep(self, client: int, memory: dict[str, Vector]) -> None:
        if memory:
            self._memories[client] = memory

    # -- together -----------------------------------------------------------------------------

    def _together(
        self, clients: Sequence[int], models: Models, round: int
    ) -> Iterator[tuple[int, LocalUpdate]]:
        """The updates pass by pass, each with its client's place in ``clients``."""
        each = [models] * len(clients) if isinstance(models, np.ndarray) else models
        groups = self._groups(clients)
        members = (
            self._members([clients[at] for at in group], [each[at] for at in group])
            for group in groups
        )
        self._flat.module.train()
        for group, done in zip(groups, self._trained(members, round), strict=True):
            lane = done[0].client % self.lanes
            right = None
            if len(done) > 1 and is_checked(self._options.seed, round, lane, self.lanes):
                right = self._checked(done, round)
            for number, (at, member) in enumerate(zip(group, done, strict=True)):
                update, memory = member.update(), _vectors(member.memory)
                if right is not None:
                    update, memory = right[number]
                if self._options.keep_momentum:
                    self._keep(member.client, memory)
                yield at, update

    def _groups(self, clients: Sequence[int]) -> list[list[int]]:
        """Who shares a pass, lane by lane, as places in ``clients``."""
        lanes: dict[int, list[int]] = defaultdict(list)
        for at, client in enumerate(clients):
            lanes[client % self.lanes].append(at)
        return [
            [places[at] for at in together]
            for places in lanes.values()
            for together in passes([self._share_of_a_pass(clients[at]) for at in places])
        ]

    def _checked(
        self, done: Sequence[Trainee], round: int
    ) -> list[tuple[LocalUpdate, dict[str, Vector]]] | None:
        """None for a pass that gave what the loop gives; else what the loop gives, for good."""
        starts = [member.start.cpu().numpy() for member in done]
        with single_threaded():
            alone = [self._alone(m.client, x, round) for m, x in zip(done, starts, strict=True)]
            for member, start, (expected, _) in zip(done, starts, alone, strict=True):
                client = member.client

                def loop(model: Vector, client: int = client) -> Vector:
                    return self._alone(client, model, round)[0].vector

                name = Stream(self._options.seed, "last bit", round, client)
                off = is_wrong(member.update().vector, expected.vector, start, name, loop)
                if off is not None:
                    log.warning(
                        "round %d: trained in one pass with others, client %d's update is off that "
                        "of the plain loop by %.2g of its norm: the model's forward pass depends "
                        "on who shares a batch; from now on clients are trained one after another",
                        *(round, client, off),
                    )
                    self.train_apart(round)
                    return alone
        return None

    def _members(self, clients: Sequence[int], models: Sequence[Vector]) -> list[Trainee]:
        """The clients of a pass; those given one and the same model start from one tensor."""
        starts = {id(model): model for model in models}
        copies = {name: self._flat.checked(model) for name, model in starts.items()}
        found = []
        for client, model in zip(clients, models, strict=True):
            kept = self._memories.get(client, {}) if self._options.keep_momentum else {}
            memory: Memory = {name: torch.tensor(value) for name, value in kept.items()}
            found.append(Trainee(client, self._part(client), memory, copies[id(model)]))
        return found

    def _share_of_a_pass(self, client: int) -> float:
        """How much of a pass a client fills: of its activations, or of the memory it may use."""
        samples = len(self._part(client))
        activations = self._options.batch(samples) * self._probe.activation_bytes
        memory = 2 * activations + VECTORS * 4 * len(self._flat)
        return max(activations / PASS_BYTES, memory / self._budget)

    def _trained(self, groups: Iterator[list[Trainee]], round: int) -> Iterator[list[Trainee]]:
        def train(group: list[Trainee]) -> list[Trainee]:
            with single_threaded():
                self._passes.train(group, round)
            return group

        if self._threads == 1:
            yield from map(train, groups)
            return
        waiting: deque[Future[list[Trainee]]] = deque()
        # MKL has one number for the whole process: a pass that ends must not raise it for another.
        with (
            single_threaded(),
            ThreadPoolExecutor(
                self._threads, "eris-training", partial(torch.set_num_threads, 1)
            ) as workers,
        ):
            for group in groups:
                waiting.append(workers.submit(train, group))
                if len(waiting) > self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    # -- which way ----------------------------------------------------------------------------

    def _choose(self, path: Path) -> Probe:
        if path == "loop":
            return Probe("path='loop' asks for it")
        found = Probe(self._options.fast_path_obstacle)
        if len(self._flat) > self._flat.trained:
            found = Probe("the running statistics of batch norm are averaged")
        if found.obstacle is None:
            found = self._probed()
        if found.obstacle is not None and path == "fast":
            raise InvalidSetting("path", path, f"'auto' or 'loop': {found.obstacle}")
        if found.obstacle is not None and len(self) > FEW:
            log.warning("clients are trained one after another: %s", found.obstacle)
        return found

    def _probed(self) -> Probe:
        few = []
        for client, samples in ((0, 2), (min(1, len(self) - 1), 3)):
            numbers = torch.from_numpy(self._part(client)[:samples])
            few.append((self._inputs[numbers], self._targets[numbers]))
        with single_threaded():
            return probe(self._passes.gradients, few[0], few[1])


def passes(shares: Sequence[float]) -> list[list[int]]:
    """Put clients, in their order, into passes of about equal size, each full at most.

    >>> passes([0.3] * 10)
    [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    """
    count = min(len(shares), math.ceil(sum(shares)))
    ends = np.cumsum(shares)
    middles = (ends - np.asarray(shares) / 2) / ends[-1:]
    chosen = np.minimum((middles * count).astype(np.int64), count - 1)
    found = [np.flatnonzero(chosen == number).tolist() for number in range(count)]
    return [places for places in found if places]


def _in_order(updates: Iterator[tuple[int, LocalUpdate]]) -> Iterator[LocalUpdate]:
    """By place, each as soon as it and all before it are there."""
    ready: dict[int, LocalUpdate] = {}
    due = 0
    for at, update in updates:
        ready[at] = update
        while due in ready:
            yield ready.pop(due)
            due += 1


def _vectors(memory: Memory) -> dict[str, Vector]:
    return {name: value.cpu().numpy() for name, value in memory.items()}
