"""The front door for Python users: clients and a model in, a trained model and its record out."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eris.callbacks import Callback, check_callbacks
from eris.core.composition import composed
from eris.core.errors import InvalidSetting, PrivacyWarning, require
from eris.core.noise import PrivacyClaim
from eris.core.rules import FedAvg as FedAvgRule
from eris.core.rules import ServerRule
from eris.core.vectors import Vector
from eris.data.cache import cache_root
from eris.methods.method import GossipComposition, GossipMethod, Method
from eris.methods.privacy import LocalPrivacy
from eris.protocol.agreement import Agreement
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.secure.noise_terms import Level, SharedNoise, usually_included
from eris.protocol.settings import Settings, model_digest, warn_of_sparse_masks
from eris.protocol.view import View
from eris.runtimes.cohort import Cohort
from eris.runtimes.events import EventEngine
from eris.runtimes.faults import FaultPlan
from eris.runtimes.logarithm_tables import kept_table
from eris.runtimes.sampling import Sampling
from eris.runtimes.station import Place, Station, Stations, under
from eris.runtimes.swarm import Swarm
from eris.session import Budget, Engine, Fit, RoundRecord, Session
from eris.starting import check_trainers, chosen_method, chosen_rule, starting_point
from eris.training.population import (
    ClippingPopulation,
    Population,
    Trainers,
    by_client,
    evaluations,
    mean_metrics,
)
from eris.training.trainer import PerSampleNoise, PrivateTrainer, Trainer

if TYPE_CHECKING:
    from torch import nn

OF_THE_METHOD = {
    "n", "plan", "scheme", "compressor", "masks", "shift", "initial", "secure", "noise",
}  # fmt: skip


class RefusedWarning(UserWarning):
    """Contributions were left out of the training."""


class Federation:
    """Clients that train one model by a method.

    ``clients`` are trainers (:mod:`eris.training.trainer`) or a population. ``model`` is what they
    start from: a flat vector, a module, a ``state_dict``, or nothing if they have ``initial()``.
    ``method`` says who sends what to whom; it is one, or the name of one with its usual settings.
    ``rule`` is a server rule or its name; by default it is FedAvg, with the clients' own step if
    they say it. With ``sampled``, every round is that many
    clients drawn anew. ``layers`` are the sizes of the model's layers, for methods that cluster
    them one by one. Any further field of
    :class:`~eris.protocol.settings.Settings` may be given by name.

    >>> class Quadratic:
    ...     "A client whose loss is ‖x − 1‖²/2."
    ...     def update(self, parameters, round):
    ...         return LocalUpdate(parameters - 1, samples=1)
    >>> from eris import ERIS, LocalUpdate, server_rule
    >>> federation = Federation([Quadratic() for _ in range(3)], np.zeros(4, np.float32),
    ...                         ERIS(aggregators=2), rule=server_rule("fedavg", learning_rate=0.5))
    >>> federation.fit(rounds=10, progress=False).model.round(3)
    array([0.999, 0.999, 0.999, 0.999], dtype=float32)
    """

    def __init__(
        self,
        clients: Population | Sequence[Trainer],
        model: ArrayLike | nn.Module | Mapping[str, Any] | None = None,
        method: Method | GossipMethod | str | None = None,
        *,
        rule: ServerRule | str | None = None,
        names: Sequence[str] | None = None,
        samples: Sequence[int] | None = None,
        seed: int = 0,
        sampled: int | None = None,
        layers: Sequence[int] = (),
        **settings: Any,
    ) -> None:
        if len(clients) == 0:
            raise InvalidSetting("clients", "none", "at least one trainer")
        self.method = chosen_method(method)
        default = (f"client-{number}" for number in range(len(clients)))
        self.names = tuple(default if names is None else (str(name) for name in names))
        if len(self.names) != len(clients):
            expected = f"one for each of {len(clients)} clients"
            raise InvalidSetting("names", len(self.names), expected)
        if isinstance(clients, Sequence):
            check_trainers(clients, self.names)
        self.population: Population = (
            Trainers(clients, self.names) if isinstance(clients, Sequence) else clients
        )
        self.initial, self.layout = starting_point(model, self.population)
        self.seed, self.sampled = seed, sampled
        self._layers = tuple(int(size) for size in layers)
        self._weights = [1] * len(clients) if samples is None else [int(s) for s in samples]
        self._sampling: Sampling | None = None
        self._shares: Level | None = None
        self._rate = 1.0
        self.rule = chosen_rule(rule, self.population)
        _check_names(settings)
        if isinstance(self.method, GossipMethod):
            self._gossip = self._compose_gossip(self.method, settings)
            self.agreement = None
        else:
            self.agreement = self._agree(self.method, samples, settings)
        if self._privacy is not None and isinstance(clients, Sequence):
            _check_private(clients)

    def force(self, client: int, rounds: Iterable[int]) -> None:
        """Have a client in these rounds, whoever is sampled for them."""
        if self._sampling is None:
            raise InvalidSetting("forced client", client, "a federation with `sampled`")
        expected = f"one of {len(self.names)}, by number from 0"
        require(0 <= client < len(self.names), "forced client", client, expected)
        self._sampling = replace(self._sampling, forced=(client, frozenset(rounds)))

    # -- agreeing -----------------------------------------------------------------------------

    def _agree(
        self, method: Method, samples: Sequence[int] | None, settings: Mapping[str, Any]
    ) -> Agreement:
        """Settings and view of an aggregating federation, and whom a round samples."""
        count = len(self.names) if self.sampled is None else self.sampled
        if not 1 <= count <= len(self.names):
            raise InvalidSetting("sampled", count, f"1 to {len(self.names)}, the clients")
        parts = method.compose(self.names[:count], self._weights[:count])
        if samples is None:
            parts.scheme.check_view(replace(parts.view, samples=None))
        if parts.scheme.lasting and self.sampled is not None:
            expected = f"nothing: {parts.scheme.lasting}, which needs a lasting membership"
            raise InvalidSetting("sampled", self.sampled, expected)
        self._privacy, self._shares = parts.privacy, parts.shares
        self._rate = parts.sampling_rate
        if self._rate != 1 and self.sampled is not None:
            expected = "1 beside `sampled`: who takes part is drawn in public, which hides nobody"
            raise InvalidSetting("sampling_rate", self._rate, expected)
        if self.sampled is not None:
            template = replace(parts.view, samples=None)
            self._sampling = Sampling(template, self.names, self.seed)
        usual: dict[str, Any] = {}
        if parts.secure is not None:
            usual["min_included"] = parts.secure.least_included
        if parts.shares is not None:
            usual["min_included"] = max(usual["min_included"], usually_included(count))
            usual["non_finite"] = "zero"
        agreed = Settings(
            n=len(self.initial),
            plan=parts.plan,
            scheme=parts.scheme.fitted(self.rule, self.initial, self._layers),
            secure=parts.secure,
            rule=self.rule,
            seed=self.seed,
            initial=model_digest(self.initial),
            **(usual | dict(settings)),
        )
        _warn_of_exposure(agreed)
        warn_of_sparse_masks(agreed, stacklevel=3)
        return Agreement(agreed, parts.view)

    def _compose_gossip(
        self, method: GossipMethod, settings: Mapping[str, Any]
    ) -> GossipComposition:
        if self.sampled is not None:
            expected = "nothing: in gossip everyone has a model of its own"
            raise InvalidSetting("sampled", self.sampled, expected)
        for name, value in settings.items():
            raise InvalidSetting(name, value, f"no such setting: {method.name} does not aggregate")
        if not isinstance(self.rule, FedAvgRule):
            expected = "fedavg: nodes that gossip step by themselves"
            raise InvalidSetting("rule", self.rule.name, expected)
        parts = method.compose_gossip(
            self.names, len(self.initial), self.seed, self.rule.learning_rate, self._weights
        )
        self._privacy = parts.privacy
        return parts

    # -- training -----------------------------------------------------------------------------

    def start(
        self,
        rounds: int,
        *,
        record: bool = False,
        faults: FaultPlan | None = None,
        engine: Literal["local", "ray"] = "local",
        stations: int | None = None,
    ) -> Session:
        """A training of ``rounds`` rounds, to be moved on by :meth:`Session.step`.

        ``engine="ray"`` spreads the clients over ``stations`` workers (default: one a core) of the
        Ray cluster this process is connected to, or of one on this machine.
        """
        if rounds < 1:
            raise InvalidSetting("rounds", rounds, "at least 1")
        if self._shares is not None and self.agreement is not None:
            noisy = replace(self.agreement.settings, noise=self._shared(rounds))
            self.agreement = Agreement(noisy, self.agreement.view)
            if self._shares == "sample" and isinstance(self.population, ClippingPopulation):
                if self._rate == 1:
                    self.population.check_clipping(self.initial)
                else:
                    self.population.check_clipping(self.initial, packed=True)
        noise, budget = self.noise(rounds)
        carrier = self._engine(noise, record, faults or FaultPlan(), engine, stations)
        agreed = self.settings.canonical
        sampled = self._sampling.view if self._sampling is not None else None
        return Session(
            carrier,
            self._view(),
            agreed,
            record=record,
            privacy=budget,
            views=sampled,
            rounds=rounds,
            layout=self.layout,
        )

    def fit(
        self,
        rounds: int,
        *,
        evaluate: Callable[[Vector], Mapping[str, float]] | Literal["clients"] | None = None,
        evaluate_every: int = 1,
        record: bool = False,
        faults: FaultPlan | None = None,
        engine: Literal["local", "ray"] = "local",
        progress: bool | str = True,
        callbacks: Sequence[Callback] = (),
    ) -> Fit:
        """Train for ``rounds`` rounds.

        ``evaluate(model)`` is asked every ``evaluate_every`` rounds and after the last; "clients"
        asks every client's trainer, and takes the mean weighted by their samples. Each of
        ``callbacks`` is called after a round with its record and the training, and ends it by
        returning True (:mod:`eris.callbacks`). ``record`` keeps every message for an audit;
        ``faults`` injects failures; ``engine`` is as in :meth:`start`. ``progress`` shows a bar,
        labelled with the method's name or the one given.
        """
        if evaluate_every < 1:
            raise InvalidSetting("evaluate_every", evaluate_every, "at least 1")
        if not (evaluate in ("clients", None) or callable(evaluate)):
            expected = "'clients', or a function of the model that returns its metrics"
            raise InvalidSetting("evaluate", evaluate, expected)
        check_callbacks(callbacks, evaluated=evaluate is not None)
        session = self.start(rounds, record=record, faults=faults, engine=engine)
        history: list[RoundRecord] = []
        shown = _bar() if progress else nullcontext()
        with closing(session), self._states_kept(), _closing(callbacks), shown as bar:
            label = progress if isinstance(progress, str) else self.method.name
            task = bar.add_task(label, total=rounds, note="") if bar else None
            for round in range(1, rounds + 1):
                done = session.step()
                if evaluate and (round % evaluate_every == 0 or round == rounds):
                    done = self._evaluated(done, session, evaluate)
                if done.refused and not any(record.refused for record in history):
                    stalled = "; nothing was published this round" if done.included == 0 else ""
                    warnings.warn(RefusedWarning(f"{done.refused[0]}{stalled}"), stacklevel=2)
                history.append(done)
                if bar and task is not None:
                    bar.advance(task)
                    if done.metrics:
                        bar.update(task, note=_note(done.metrics))
                said = [callback(done, session) for callback in callbacks]
                if any(isinstance(one, bool | np.bool_) and one for one in said):
                    break
            self._bring(session)
            return session.outcome(history, kept=by_client(self.population.state()))

    def _bring(self, session: Session) -> None:
        """Have here what clients keep that train in other processes."""
        if not isinstance(session.engine, Stations | EventEngine):
            self.population.restore(under("trainer/", session.state()))

    def _evaluated(
        self,
        done: RoundRecord,
        session: Session,
        evaluate: Callable[[Vector], Mapping[str, float]] | Literal["clients"],
    ) -> RoundRecord:
        if evaluate != "clients":
            metrics = evaluate(session.model)
            if not isinstance(metrics, Mapping):
                expected = "a mapping of names to numbers, such as {'loss': 0.1}"
                raise InvalidSetting("what evaluate() returned", type(metrics).__name__, expected)
            return replace(done, metrics=metrics)
        models = session.models()
        self._bring(session)
        each = evaluations(self.population, models if len(models) > 1 else models[0])
        if not each:
            expected = "a function of the model: no client has evaluate()"
            raise InvalidSetting("evaluate", evaluate, expected)
        return replace(done, metrics=mean_metrics(each), evaluated=each)

    # -- parts --------------------------------------------------------------------------------

    def _engine(
        self,
        noise: PerSampleNoise | None,
        record: bool,
        faults: FaultPlan,
        engine: str,
        stations: int | None,
    ) -> Engine:
        if engine not in ("local", "ray"):
            raise InvalidSetting("engine", engine, "'local' or 'ray'")
        if stations is not None and stations < 1:
            raise InvalidSetting("stations", stations, "at least 1")
        build: Callable[..., Station]
        tables = partial(kept_table, cache_root() / "logarithms")
        if self.agreement is None:
            if faults.in_mid_round:
                expected = "link, churn: a round of gossip goes wrong as a whole"
                raise InvalidSetting("faults", "in mid-round", expected)
            for name in ("dropout", "straggle"):
                if getattr(faults, name):
                    expected = "0: in gossip nobody aggregates, and nobody waits"
                    raise InvalidSetting(name, getattr(faults, name), expected)
            build = partial(Swarm, self._gossip, self.initial, self.population)
        elif faults.in_mid_round:
            if engine != "local" or self._sampling is not None:
                expected = "the local engine and no sampling with faults in mid-round"
                raise InvalidSetting("engine", engine, expected)
            return EventEngine(
                self.agreement,
                self.initial,
                self.population,
                faults=faults,
                noise=noise,
                record=record,
                tables=tables,
            )
        else:
            build = partial(
                Cohort, self.agreement, self.initial, self.population, sampling=self._sampling,
                tables=tables,
            )  # fmt: skip
        build = partial(build, faults=faults, noise=noise, record=record)
        if engine == "local":
            count = stations or 1
            return Stations([build(place=Place(number, count)) for number in range(count)])
        from eris.runtimes.ray import RayStations

        return RayStations(build, stations)

    def noise(self, rounds: int) -> tuple[PerSampleNoise | None, Budget | None]:
        """The noise of a method with local privacy, and what a whole training spends."""
        privacy: LocalPrivacy | None = self._privacy
        if privacy is None:
            return None, None
        if self._shares is not None:
            shared = self._shared(rounds)
            sigma = float.fromhex(shared.sigma)
            readers, openers = (
                PrivacyClaim("gaussian", shared.sensitivity, std, rounds, shared.sampling_rate)
                for std in (sigma, shared.std)
            )
            figures = [composed((claim,), privacy.delta) for claim in (readers, openers)]
            return None, Budget(readers, figures[0], privacy.delta, figures[1])
        uses = int(getattr(self.population, "uses_of_a_sample", 1))
        claim = privacy.claim(rounds, uses)
        seed = hashlib.sha256(f"noise/{self.seed}".encode()).digest()[:8]
        noise = PerSampleNoise(privacy.clip, claim.sigma, int.from_bytes(seed, "little"))
        return noise, Budget(claim, privacy.spent(rounds, uses), privacy.delta)

    def _shared(self, rounds: int) -> SharedNoise:
        """What every client adds, so that readers of so many rounds learn no more than agreed."""
        assert self.agreement is not None
        settings, privacy = self.agreement.settings, self._privacy
        assert self._shares is not None
        assert settings.secure is not None
        assert privacy is not None
        return SharedNoise.planned(
            self._shares, privacy.epsilon, clip=privacy.clip, rounds=rounds, delta=privacy.delta,
            clients=len(self.agreement.view.clients), samples=max(self._weights),
            min_included=settings.min_included, colluders=settings.secure.known,
            sampling_rate=self._rate,
        )  # fmt: skip

    def _view(self) -> View:
        if self.agreement is None:
            return View(self._gossip.members, self._gossip.clients, ())
        return self.agreement.view if self._sampling is None else self._sampling.population

    @property
    def settings(self) -> Settings | GossipSettings:
        """What the members agree on."""
        return self._gossip.settings if self.agreement is None else self.agreement.settings

    @contextmanager
    def _states_kept(self) -> Iterator[None]:
        """A training starts from the initial model: what clients keep over rounds ends with it."""
        state = {name: np.array(value) for name, value in self.population.state().items()}
        try:
            yield
        finally:
            self.population.restore(state)


def _check_names(settings: Mapping[str, object]) -> None:
    """Refuse settings that are none, or that the method has to say."""
    for name, value in settings.items():
        if name in OF_THE_METHOD:
            raise InvalidSetting(name, value, "a setting of the method: set it there")
        if name not in Settings.__dataclass_fields__:
            known = sorted(set(Settings.__dataclass_fields__) - OF_THE_METHOD)
            raise InvalidSetting("setting", name, f"one of {', '.join(known)}")


def _check_private(trainers: Sequence[Trainer]) -> None:
    """Refuse trainers that cannot protect single samples, before any has trained."""
    for number, trainer in enumerate(trainers):
        if not isinstance(trainer, PrivateTrainer):
            expected = "one with private_update: the method adds noise to single samples' gradients"
            raise InvalidSetting(f"trainer of client {number}", type(trainer).__name__, expected)


def _warn_of_exposure(settings: Settings) -> None:
    """Say so where a published value need not mix as many clients as ``min_included`` promises, or
    a scheme hides less than it seems to."""
    least = settings.min_included
    mixed = settings.rule.values_mixed(least)
    if mixed < least:
        text = (
            f"{settings.rule.name} may publish values that only {mixed} of {least} clients are in, "
            "to every member and of every shard"
        )
        warnings.warn(PrivacyWarning(text), stacklevel=4)
    if text := settings.scheme.exposure():
        warnings.warn(PrivacyWarning(text), stacklevel=4)


@contextmanager
def _closing(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Close those that have to be, however the training ends."""
    with ExitStack() as stack:
        for callback in callbacks:
            if (close := getattr(callback, "close", None)) is not None:
                stack.callback(close)
        try:
            yield
        except BaseException as error:
            for callback in callbacks:
                if (failed := getattr(callback, "failed", None)) is not None:
                    failed(error)
            raise


def _note(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:>16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
