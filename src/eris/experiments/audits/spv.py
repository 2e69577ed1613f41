"""SPV-MIA against a small federation that fine-tunes a language model: who can tell what was in?

Clients fine-tune stories15M on film reviews by FedAvg, ERIS and Shatter. Each observer completes,
from its own messages alone, the best model of a client that it can, and is scored on the client's
canaries by :mod:`eris.audit.spv`:

    server       the round's model with the client's whole update applied: the client's own model
    aggregator   the same with the update on its own shard only
    member       the model that everyone gets after the round, the same for all clients
    neighbour    (Shatter) its own last average with one received chunk put in

``python -m eris.experiments.audits.spv --seed 0`` prints a table, and all of it as JSON in its last
line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from eris.audit.paper_measure import PaperMeasure, paper_measure
from eris.audit.roc import Roc, roc
from eris.audit.spv import SpvAttack, SpvSettings, Tokens
from eris.audit.statistics import Pooled, pooled
from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.data import CanarySplit, canaries, iid, load_imdb
from eris.data.stories import Tokeniser, load_stories15m
from eris.experiments.audits.completion import Completed, Neighbours, Owners, Target
from eris.experiments.audits.programs import asked, told
from eris.experiments.figures import say
from eris.experiments.runs.progress import NOTE, bar
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.method import GossipMethod, Method
from eris.methods.shatter import Shatter
from eris.models.causal import CausalLM, causal_lm, next_token_loss, sequence_nll
from eris.training.torch import flatten, single_threaded, torch_clients

Advance = Callable[[str], None]
"""Told after every step of the work what it was."""


@dataclass(frozen=True)
class SpvExperiment:
    """The federation and the attack.

    ``samples`` are dealt to every client, half of them canaries, each in by a fair coin. AdamW's
    step is the papers', at which clients memorise from the first round on. The first and the last
    round are attacked: later models have seen every sample more often.
    """

    clients: int = 5
    samples: int = 20
    length: int = 48
    rounds: int = 3
    epochs: int = 2
    batch_size: int = 8
    learning_rate: float = 5e-5
    prompts: int = 16
    virtual_nodes: int = 4
    degree: int = 2
    draws: int = 1000
    seed: int = 0
    attack: SpvSettings = field(default_factory=SpvSettings)

    def __post_init__(self) -> None:
        if self.clients < 3:
            raise InvalidSetting("clients", self.clients, "at least 3: no fewer are combined")
        if self.samples < 6:
            expected = "at least 6: half of them are canaries, and thirds of those are guessed"
            raise InvalidSetting("samples", self.samples, expected)
        if self.prompts < 1:
            raise InvalidSetting("prompts", self.prompts, "at least 1")

    @property
    def attacked(self) -> tuple[int, ...]:
        """The rounds that are attacked."""
        return tuple(sorted({1, self.rounds}))

    @property
    def methods(self) -> tuple[Method | GossipMethod, ...]:
        """What is compared."""
        secret = int(Stream(self.seed, "spv-owners").words(0, 1)[0])
        return (
            FedAvg(),
            ERIS(aggregators=self.clients),
            Shatter(self.virtual_nodes, self.degree, owner_secret=secret),
        )


@dataclass(frozen=True, eq=False)
class Texts:
    """Tokens of the candidates and of the prompts, and who trains on what."""

    tokens: Tokens
    prompts: Tokens
    split: CanarySplit

    @property
    def client(self) -> NDArray[np.int64]:
        """Whose each canary is."""
        sizes = [len(part) for part in self.split.canaries]
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def canaries(self) -> NDArray[np.int64]:
        """Places of all canaries, client by client."""
        return np.concatenate(self.split.canaries)

    @property
    def included(self) -> NDArray[np.bool_]:
        """Which of them were trained on."""
        return np.concatenate(self.split.included)


@dataclass(frozen=True)
class Measure:
    """What one score of one observer is worth."""

    roc: Roc
    pooled: Pooled
    paper: PaperMeasure


@dataclass(frozen=True)
class SpvRow:
    """One observer of one method."""

    method: str
    observer: str
    round: int
    visible: float
    """The share of a client's coordinates that the observer sees in the round."""
    measures: Mapping[str, Measure]


def deal(
    settings: SpvExperiment, tokeniser: Tokeniser, texts: Sequence[str], others: Sequence[str]
) -> Texts:
    """Texts of at least ``length`` tokens, dealt to the clients; prompts come from ``others``."""
    wanted = settings.clients * settings.samples
    tokens = _whole(texts, tokeniser, wanted, settings, "spv-texts")
    prompts = _whole(others, tokeniser, settings.prompts, settings, "spv-prompts")
    parts = iid(wanted, settings.clients, settings.samples, settings.seed)
    return Texts(tokens, prompts, canaries(parts, 0.5, settings.seed))


def _whole(
    texts: Sequence[str], tokeniser: Tokeniser, count: int, settings: SpvExperiment, purpose: str
) -> Tokens:
    """The first ``count`` texts in a random order that fill their row."""
    rows: list[Tokens] = []
    for place in Stream(settings.seed, purpose).permutations(1, len(texts))[0]:
        if len(rows) == count:
            break
        # The marks are no words of the reviewers'.
        text = texts[place].replace("<br />", " ")
        row = tokeniser.encode_many([text], settings.length)
        if (row >= 0).all():
            rows.append(row)
    if len(rows) < count:
        expected = f"{count} of at least {settings.length} tokens"
        raise InvalidSetting("texts", f"{len(rows)} that are long enough", expected)
    return np.concatenate(rows)


def observed(
    method: Method | GossipMethod,
    settings: SpvExperiment,
    model: CausalLM,
    texts: Texts,
    advance: Advance,
) -> Iterator[Completed]:
    """Train by a method; what its observers complete in the rounds that are attacked."""
    tokens = torch.from_numpy(texts.tokens)
    clients = torch_clients(
        model,
        tokens,
        tokens,
        texts.split.train,
        loss=next_token_loss,
        optimiser="adamw",
        learning_rate=settings.learning_rate,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    initial = flatten(model)
    federation = Federation(
        clients,
        initial,
        method,
        rule=server_rule("fedavg", learning_rate=settings.learning_rate),
        samples=[len(part) for part in texts.split.train],
        seed=settings.seed,
    )
    with closing(federation.start(settings.rounds, record=True)) as session:
        transcript = session.transcript
        assert transcript is not None
        watcher = (Owners if transcript.owners else Neighbours)(transcript, federation.initial)
        for round, records in session.rounds_seen(settings.rounds):
            completed = watcher.see(round, records)
            records.clear()  # a round is hundreds of megabytes
            advance(f"{method.name} round {round}")
            if round in settings.attacked:
                yield from completed


def measured(
    settings: SpvExperiment, attack: SpvAttack, texts: Texts, paraphrases: Tokens,
    targets: Sequence[Target], advance: Advance,
) -> dict[str, Measure]:  # fmt: skip
    """The statistics of each kind of score of the canaries that the targets are asked about."""
    client, places = texts.client, texts.canaries
    kinds = {name: np.zeros(len(places)) for name in ("spv", "difference", "loss")}
    asked = np.zeros(len(places), np.bool_)
    for number, target in enumerate(targets):
        written = attack.written(target.model, texts.prompts, number)
        reference = attack.reference(written)
        chosen = np.isin(client, target.clients)
        some = attack.scores(
            target.model, reference, texts.tokens[places[chosen]], paraphrases[:, chosen]
        )
        for name, values in kinds.items():
            values[chosen] = getattr(some, name)
        asked |= chosen
        advance("a model attacked")
    whose, truth = client[asked], texts.included[asked]
    lots = {"seed": settings.seed, "draws": settings.draws}
    return {
        name: Measure(
            roc(values[asked], truth),
            pooled(values[asked], truth),
            paper_measure(values[asked][None], whose, truth, **lots),
        )
        for name, values in kinds.items()
    }


def rows(
    settings: SpvExperiment,
    model: CausalLM,
    starts_word: NDArray[np.bool_],
    texts: Texts,
    advance: Advance = lambda done: None,
) -> Iterator[SpvRow]:
    """Train by every method, attack through every observer, a row as soon as it is known."""
    attack = SpvAttack(
        model,
        flatten(model),
        sequence_nll,
        starts_word,
        settings=settings.attack,
        seed=settings.seed,
    )
    paraphrases = attack.paraphrases(texts.tokens[texts.canaries])
    advance("paraphrases")
    known: set[tuple[str, int]] = set()
    for method in settings.methods:
        for sight in observed(method, settings, model, texts, advance):
            # FedAvg's and ERIS' members get the same model, bit for bit.
            if (sight.observer, sight.round) in known:
                continue
            known.add((sight.observer, sight.round))
            measures = measured(settings, attack, texts, paraphrases, sight.targets, advance)
            yield SpvRow(method.name, sight.observer, sight.round, sight.visible, measures)


def steps(settings: SpvExperiment) -> int:
    """How often ``rows`` says that it got on."""
    targets = 3 * settings.clients + 1  # of a round; members share one
    return 1 + 3 * settings.rounds + len(settings.attacked) * targets


def as_table(settings: SpvExperiment, found: Sequence[SpvRow]) -> Table:
    """The rows for people."""
    table = Table(
        "method",
        "observer",
        "round",
        "sees",
        "score",
        "AUC (95 %)",
        "thirds",
        "by client",
        "null 95 %",
        title=f"Shatter: k = {settings.virtual_nodes}, r = {settings.degree}",
    )
    for row in found:
        for name, one in row.measures.items():
            about = (row.method, row.observer, str(row.round), f"{row.visible:.0%}")
            table.add_row(
                *(about if name == "spv" else ("",) * 4),
                name,
                f"{one.roc.auc:.3f} ({one.roc.low:.2f}–{one.roc.high:.2f})",
                f"{one.pooled.accuracy:.1%} ({one.pooled.low:.0%}–{one.pooled.high:.0%})",
                f"{one.paper.accuracy:.1%}",
                f"{one.paper.null_q95:.1%} (p {one.paper.p_value:.3f})",
            )
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment on real weights and real reviews."""
    options = ("seed", "samples", "length", "rounds", "epochs", "prompts", "learning_rate")
    module = "eris.experiments.audits.spv"
    settings = asked(SpvExperiment, module, __doc__, options, arguments)
    weights, data = load_stories15m(), load_imdb()
    tokeniser, model = Tokeniser.load(weights.folder), causal_lm(weights.folder)
    texts = deal(settings, tokeniser, data.train_texts, data.test_texts)
    about = {
        "data": f"{data.name}: {data.source}",
        "model": f"{weights.name}: {weights.source}",
        "parameters": len(flatten(model)),
        "canaries": len(texts.included),
        "included": int(texts.included.sum()),
        "settings": asdict(settings),
    }
    for name, value in about.items():
        say(f"{name}: {value}")
    began, spent = time.monotonic(), time.process_time()
    with bar(Console(stderr=True), NOTE) as shown, single_threaded():
        task = shown.add_task("SPV-MIA", total=steps(settings), note="")

        def advance(done: str) -> None:
            shown.update(task, advance=1, note=done)

        found = list(rows(settings, model, tokeniser.starts_word, texts, advance))
    seconds = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - spent}
    figures = {**about, **seconds, "rows": [asdict(row) for row in found]}
    told(as_table(settings, found), 120, figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
