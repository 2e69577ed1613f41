"""One client's training in PyTorch: from the flat model and the client's data to its update.

The update is the pseudo-gradient (x − x_k)/λ. As every step subtracts λ times a direction (the
gradient, the momentum, Adam's ratio of moments), that is the sum of the directions of the local
steps; it is accumulated as that sum, which spares the cancellation of subtracting two nearly equal
models. For one step of plain SGD it is the gradient.

Nothing here changes PyTorch's process-wide state. Results are reproducible bit for bit for a given
number of threads; PyTorch splits sums by thread, so compare runs under ``single_threaded()``.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.training.augmentation import augmentation, check_augmentation
from eris.training.estimators import gradient_estimator
from eris.training.evaluation import (
    Evaluation,
    RatingError,
    evaluate,
    evaluate_ratings,
    normalise,
)
from eris.training.fitting import check_fit
from eris.training.flat import FlatParameters, flatten, parameter_count, unflatten
from eris.training.given import Samples, as_tensors, batch_size_of
from eris.training.gradients import Chosen, ClientGradients, Loss, StepGradient
from eris.training.memory import Memory, restored, saved
from eris.training.optimisers import optimiser_rule, step_direction
from eris.training.options import LocalTraining, RunningStatistics, TrainerSettings
from eris.training.private import noisy_steps
from eris.training.slots import SlotGradients, check_one_step, check_slots
from eris.training.statistics import (
    chosen,
    mixing_layer,
    statistics_length,
    using_statistics,
    with_statistics,
)
from eris.training.threads import single_threaded
from eris.training.trainer import LocalUpdate, PerSampleClip, PerSampleNoise

__all__ = [
    "Evaluation",
    "LocalTraining",
    "Loss",
    "RatingError",
    "RunningStatistics",
    "TorchTrainer",
    "TrainerSettings",
    "evaluate",
    "evaluate_ratings",
    "flatten",
    "normalise",
    "parameter_count",
    "single_threaded",
    "torch_clients",
    "unflatten",
    "with_statistics",
]


class TorchTrainer:
    """One client: its data, how it trains, and what it keeps across rounds (say, momentum).

    ``model`` gives the architecture and is scratch space: every call overwrites its parameters
    first, so any number of trainers (used one at a time) can share a single module.

    Its data are ``inputs`` and ``targets``, tensors or arrays, or a ``Dataset`` or ``DataLoader``
    in place of both (a loader's batch size is taken, if none is set). ``test`` is what
    :meth:`evaluate` asks about, in the same forms; without it, that is the client's own data.
    ``device`` is where the model computes; as it is, where it lies.

    ``settings`` are those of ``LocalTraining``. The order of the batches and what the model itself
    draws (dropout) come from streams of their own, named by (seed, client, round), so a round's
    update does not depend on who trained before.

    >>> trainer = TorchTrainer(nn.Linear(2, 2), torch.eye(2), torch.arange(2), learning_rate=0.1)
    >>> trainer.update(np.zeros(6, np.float32), round=0).vector
    array([-0.25,  0.25,  0.25, -0.25,  0.  ,  0.  ], dtype=float32)
    >>> trainer.evaluate(np.zeros(6, np.float32))["samples"], trainer.layout
    (2, [('weight', (2, 2)), ('bias', (2,))])
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Samples,
        targets: Tensor | ArrayLike | None = None,
        *,
        test: tuple[Any, Any] | Samples | None = None,
        loss: Loss = functional.cross_entropy,
        device: str | torch.device | None = None,
        client: int = 0,
        **settings: Unpack[TrainerSettings],
    ) -> None:
        if (size := batch_size_of(inputs)) is not None:
            settings.setdefault("batch_size", size)
        given, wanted = as_tensors(inputs, targets)
        self._test = None if test is None else as_tensors(*_pair(test))
        placed(model, device)
        asked = LocalTraining(**settings)
        choice = chosen(model, asked.running_statistics)
        self._options = replace(asked, running_statistics=choice)
        self._client = client
        self._model_draws = Stream(self._options.seed, "model", client=client)
        flat = FlatParameters(model, self._options.running_statistics)
        if self._options.estimator != "sgd":
            _check_deterministic(model, self._options.estimator)
        check_augmentation(self._options, given)
        check_fit(flat, given, wanted, loss)
        self._flat, self._gradients = flat, ClientGradients(flat, given, wanted, loss)
        self._start: Vector = flat.read().cpu().numpy()
        self._optimiser = optimiser_rule(self._options)
        self._estimator = gradient_estimator(self._options)
        self._directions: Memory = {}
        self._estimates: Memory = {}
        self._statistics: Memory = {}

    @property
    def model(self) -> nn.Module:
        """The architecture, and scratch space."""
        return self._flat.module

    @property
    def options(self) -> LocalTraining:
        """How the client trains."""
        return self._options

    @property
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of what travels, in its order: the module's own, as in a state_dict."""
        return self._flat.layout

    @property
    def samples(self) -> int:
        """How many the client has."""
        return len(self._gradients)

    @property
    def learning_rate(self) -> float:
        """The step of the client, by which its update is to be multiplied."""
        return self._options.learning_rate

    @property
    def uses_of_a_sample(self) -> int:
        """How many steps of a round may use one sample."""
        return self._options.uses_of_a_sample

    def initial(self) -> Vector:
        """The model that the module held when the trainer was made of it."""
        return self._start.copy()

    @property
    def fast_path_obstacle(self) -> str | None:
        """Why many such clients cannot be trained in one pass; None if they can."""
        if (layer := mixing_layer(self.model)) is not None:
            return f"layer {layer} mixes the samples of a batch, as batch norm does"
        return self._options.fast_path_obstacle

    def update(self, parameters: Vector, round: int) -> LocalUpdate:
        """Train from ``parameters`` and return the update, loss averaged over the local steps."""
        return self._descend(parameters, round, self._estimated(round))

    def corrected_update(self, parameters: Vector, round: int, correction: Vector) -> LocalUpdate:
        """As ``update``, with ``correction`` added to every step's gradient."""
        added, estimated = self._flat.checked(correction), self._estimated(round)

        def gradient(step: int, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
            estimate, loss = estimated(step, position, chosen)
            return estimate.add_(added), loss

        return self._descend(parameters, round, gradient)

    def private_update(self, parameters: Vector, round: int, noise: PerSampleNoise) -> LocalUpdate:
        """As ``update``, with every sample's gradient clipped and Gaussian noise in every step.

        The noise is that of ``noise.draws``, a named stream in simulations: step s adds draws s·n
        to (s + 1)·n to the sum of the n coordinates. Momentum, FedProx and weight decay
        work on the noisy gradient as usual. ``metrics`` are not protected and stay at the client.
        """
        if (layer := mixing_layer(self.model)) is not None:
            expected = "one that treats every sample by itself, as group norm does"
            raise InvalidSetting(
                "layer of a model that is to be trained privately", layer, expected
            )
        if self._options.estimator != "sgd":
            expected = "'sgd' for a private update: SVRG and SAGA reuse gradients without noise"
            raise InvalidSetting("estimator", self._options.estimator, expected)
        if self._options.augment != "none":
            expected = "'none' for a private update: samples are clipped as they are"
            raise InvalidSetting("augment", self._options.augment, expected)
        source = noise.draws(round, self._client)
        return self._descend(parameters, round, noisy_steps(noise, source, self._gradients))

    def check_clipping(self, parameters: Vector, *, packed: bool = False) -> None:
        """Refuse, before the first round, training whose samples cannot be bounded one by one or,
        if they are to be ``packed``, of whom a gradient depends on its place in a pass."""
        check_one_step(self.model, self._options, len(self._gradients))
        self.model.train()
        check_slots(self._gradients, self._flat.checked(parameters), packed=packed)

    def clipped_update(self, parameters: Vector, round: int, clip: PerSampleClip) -> LocalUpdate:
        """The sum of the samples' clipped gradients at ``parameters``, exact, as ``content``.

        One step and all samples, or those of a secret batch, in slots (:mod:`eris.training.slots`).
        No metrics: each would be a release without noise.
        """
        check_one_step(self.model, self._options, len(self._gradients))
        position = self._flat.checked(parameters)
        slots = SlotGradients(self._gradients, clip.slots)
        self.model.train()
        content = slots.clipped_sum(position, clip)
        return LocalUpdate(np.zeros_like(parameters), slots.count, content=content)

    def evaluate(
        self,
        parameters: Vector,
        inputs: Samples | None = None,
        targets: Tensor | ArrayLike | None = None,
        *,
        batch_size: int = 1024,
    ) -> Evaluation:
        """Mean loss and accuracy of this client's model, which may have statistics of its own.

        On these data or, without any, on ``test``; where there is none, on what it trains on.
        """
        if inputs is not None:
            given = as_tensors(inputs, targets)
        else:
            given = self._test or (self._gradients.inputs, self._gradients.targets)
        choice = self._options.running_statistics
        # The client's statistics are lent to the module, where ``ignore`` leaves and finds them.
        inner: RunningStatistics = "ignore" if choice == "local" else choice
        with using_statistics(self.model, choice, dict(self._statistics)):
            return evaluate(
                self.model,
                parameters,
                *given,
                batch_size=batch_size,
                loss=self._gradients.loss,
                running_statistics=inner,
            )

    def state(self) -> dict[str, NDArray[np.float32]]:
        """What the client must keep between rounds, once it has trained; docs/training.md names it.

        That is the momentum or Adam's moments, SVRG's snapshot or SAGA's table, and the client's
        own running statistics.
        """
        return saved(self._directions, self._estimates, self._statistics)

    def restore(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Continue from a ``state()``; an empty one is that of a client that never trained."""
        directions, estimates, statistics = self._lengths()
        if unknown := sorted(state.keys() - (directions | estimates | statistics).keys()):
            kept = self._options
            expected = f"a state saved at momentum {kept.momentum}, optimiser {kept.optimiser!r}, "
            expected += f"keep_momentum {kept.keep_momentum}, estimator {kept.estimator!r}, "
            expected += f"running_statistics {kept.running_statistics!r}"
            raise InvalidSetting("state of the trainer", unknown, expected)
        device = self._flat.device
        found = [restored(state, part, device) for part in (directions, estimates, statistics)]
        self._directions, self._estimates, self._statistics = found

    def _lengths(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        parameters, statistics = self._flat.trained, 0
        if self._options.running_statistics == "local":
            statistics = statistics_length(self.model)
        return (
            self._optimiser.lengths(parameters) if self._options.keep_momentum else {},
            self._estimator.lengths(parameters, len(self._gradients)),
            {"statistics": statistics} if statistics else {},
        )

    def _estimated(self, round: int) -> StepGradient:
        def gradient(step: int, position: Tensor, chosen: Chosen) -> tuple[Tensor, float]:
            if step == 0:
                self._estimator.begin(position, round, self._gradients, self._estimates)
            return self._estimator.estimate(position, chosen, self._gradients, self._estimates)

        return gradient

    def _descend(self, parameters: Vector, round: int, gradient_of: StepGradient) -> LocalUpdate:
        """The local steps, each along the direction of its gradient."""
        options, size = self._options, len(self._gradients)
        steps, orders = options.local_steps(size), options.batches(size, self._client, round)
        whole = self._flat.checked(parameters)
        position, statistics = whole[: self._flat.trained], whole[self._flat.trained :]
        start = position.clone() if options.proximal else position
        total, losses = torch.zeros_like(position), 0.0
        altered = augmentation(options, size, self._client, round)
        remembered: Memory = self._directions if options.keep_momentum else {}
        self._flat.check_unchanged()
        self.model.train()
        with (
            _drawing_from(replace(self._model_draws, round=round)),
            using_statistics(self.model, options.running_statistics, self._statistics),
        ):
            self._flat.write(whole)
            for step, order in enumerate(itertools.islice(orders, steps)):
                chosen = None if order is None else torch.from_numpy(order)
                self._gradients.altered = None if altered is None else partial(altered, step)
                gradient, loss = gradient_of(step, position, chosen)
                if options.proximal:
                    gradient = gradient + options.proximal * (position - start)
                direction = step_direction(
                    self._optimiser, gradient, position, remembered, self._gradients.unused
                )
                position.sub_(direction, alpha=options.learning_rate)
                total.add_(direction)
                losses += loss
            # Statistics have no gradient; this is what leads from those of the start to those now.
            moved = statistics - self._flat.read()[self._flat.trained :]
        total = torch.cat([total, moved / options.learning_rate]) if len(moved) else total
        self._gradients.altered = None
        self._flat.check_unchanged()
        return LocalUpdate(
            vector=total.cpu().numpy(),
            samples=size,
            steps=steps,
            metrics={"loss": losses / steps},
        )


def torch_clients(
    model: nn.Module,
    inputs: Samples,
    targets: Tensor | ArrayLike | None = None,
    partitions: Sequence[ArrayLike] | None = None,
    *,
    loss: Loss = functional.cross_entropy,
    device: str | torch.device | None = None,
    **settings: Unpack[TrainerSettings],
) -> list[TorchTrainer]:
    """One trainer per partition (indices into the data), numbered from 0.

    They share one copy of ``model`` as scratch space; ``model`` itself is left as it is. A
    ``Dataset`` or ``DataLoader`` stands for inputs and targets: ``torch_clients(model, data,
    partitions=parts, learning_rate=0.1)``.
    """
    if partitions is None:
        raise InvalidSetting("partitions", None, "a list of indices into the data for each client")
    if (size := batch_size_of(inputs)) is not None:
        settings.setdefault("batch_size", size)
    given, wanted = as_tensors(inputs, targets)
    scratch = placed(copy.deepcopy(model), device)
    clients = [
        TorchTrainer(
            scratch,
            given[places],
            wanted[places],
            loss=loss,
            client=client,
            **settings,
        )
        for client, places in enumerate(torch.as_tensor(np.asarray(p)) for p in partitions)
    ]
    for trainer in clients[1:]:
        trainer._start = clients[0]._start
    return clients


def placed(model: nn.Module, device: str | torch.device | None) -> nn.Module:
    """The model on a device, if there is one."""
    if device is None:
        return model
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as refusal:
        said = next(iter(str(refusal).splitlines()), "")
        expected = f"one that this machine's PyTorch has ({said})"
        raise InvalidSetting("device", str(device), expected) from refusal


def _pair(given: tuple[Any, Any] | Samples) -> tuple[Any, Any]:
    """Inputs and targets, the latter None if a data set brings both."""
    return given if isinstance(given, tuple) else (given, None)


@contextmanager
def _drawing_from(stream: Stream) -> Iterator[None]:
    # Dropout draws from PyTorch's global generator; lend it a seed and put its state back after.
    # One word: the generator's engine looks at 32 bits of its seed.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(stream.words(0, 1)[0]))
        yield


def _check_deterministic(model: nn.Module, estimator: str) -> None:
    """Refuse what makes a sample's gradient more than a function of the model and the sample."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            expected = f"no dropout beside estimator={estimator!r}"
            raise InvalidSetting(f"dropout of layer {name}", layer.p, expected)
    if (layer_name := mixing_layer(model)) is not None:
        expected = f"one that treats every sample by itself, beside estimator={estimator!r}"
        raise InvalidSetting("layer", layer_name, expected)
