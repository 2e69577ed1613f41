"""SPV-MIA through the views of a whole federation, on a tiny language model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from eris.audit.spv import SpvSettings
from eris.core.errors import InvalidSetting
from eris.core.rules import server_rule
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.data.stories import Tokeniser
from eris.experiments.audits.completion import Completed, Neighbours, Owners
from eris.experiments.audits.spv import SpvExperiment, Texts, as_table, deal, observed, rows, steps
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.shatter import Shatter
from eris.models.causal import CausalLM, next_token_loss
from eris.protocol.transcript import Transcript
from eris.session import Session
from eris.training.torch import TorchTrainer, flatten, single_threaded, torch_clients
from support.llama2c import tiny_model, tokens_file

TOKENISER = Tokeniser.parse(tokens_file())
SETTINGS = SpvExperiment(
    samples=8,
    length=9,
    rounds=2,
    epochs=20,
    learning_rate=1e-2,
    prompts=2,
    draws=50,
    attack=SpvSettings(paraphrases=2, prompt=3),
)
WORDS = Stream(0, "reviews").words(0, 60 * 12).reshape(60, 12) % 7
REVIEWS = [
    " ".join(["a", "b", "c", "ab", "aa", "bc", "ccc"][word] for word in row) for row in WORDS
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def texts() -> Texts:
    return deal(SETTINGS, TOKENISER, REVIEWS, REVIEWS[::-1])


def clients_of(model: CausalLM, texts: Texts) -> list[TorchTrainer]:
    tokens = torch.from_numpy(texts.tokens)
    return torch_clients(
        model, tokens, tokens, texts.split.train, loss=next_token_loss, learning_rate=0.1
    )


def started(model: CausalLM, texts: Texts, method: FedAvg | ERIS | Shatter) -> tuple[
    Federation, Session, Transcript
]:  # fmt: skip
    rule = server_rule("fedavg", learning_rate=0.1)
    federation = Federation(clients_of(model, texts), flatten(model), method, rule=rule)
    session = federation.start(2, record=True)
    assert session.transcript is not None
    return federation, session, session.transcript


def seen(
    method: FedAvg | ERIS, model: CausalLM, texts: Texts
) -> list[tuple[Vector, list[Completed]]]:
    """The model each round began with, and what was seen in it."""
    federation, session, transcript = started(model, texts, method)
    owners, found = Owners(transcript, federation.initial), []
    for round in (1, 2):
        before = session.model
        session.step()
        found.append((before, list(owners.see(round, transcript.records))))
        transcript.records.clear()
        assert np.array_equal(owners.watch.models()[0], session.model)
    return found


def test_a_server_completes_the_clients_own_models(model: CausalLM, texts: Texts) -> None:
    for number, (before, (server, member)) in enumerate(seen(FedAvg(), model, texts), start=1):
        assert (server.observer, server.visible, server.round) == ("server", 1.0, number)
        pairs = zip(clients_of(model, texts), server.targets, strict=True)
        for place, (client, target) in enumerate(pairs):
            own = before - np.float32(0.1) * client.update(before, number).vector
            assert target.clients == (place,)
            assert np.array_equal(target.model, own)
        assert (member.observer, member.targets[0].clients) == ("member", (0, 1, 2, 3, 4))
        assert not np.array_equal(member.targets[0].model, before)


def test_an_aggregator_completes_its_shard_only(model: CausalLM, texts: Texts) -> None:
    whole, parts = seen(FedAvg(), model, texts), seen(ERIS(aggregators=5), model, texts)
    for (before, (server, _)), (same, (aggregator, member)) in zip(whole, parts, strict=True):
        assert np.array_equal(before, same)
        assert aggregator.observer == "aggregator"
        assert aggregator.visible == pytest.approx(0.2, abs=0.01)
        changed = []
        for complete, part in zip(server.targets, aggregator.targets, strict=True):
            where = part.model != before
            assert np.array_equal(part.model[where], complete.model[where])
            assert 0.1 < where.mean() < 0.21
            changed.append(where)
        assert np.stack(changed).sum(axis=0).max() == 1  # five owners, each with its own shard
        assert member.targets[0].model.shape == before.shape


def test_neighbours_know_their_averages_and_put_a_chunk_in(model: CausalLM, texts: Texts) -> None:
    method = Shatter(virtual_nodes=4, degree=2, owner_secret=11)
    federation, session, transcript = started(model, texts, method)
    neighbours = Neighbours(transcript, federation.initial)
    trained: list[Vector] = []
    for round in (1, 2):
        before = session.models()
        trained = [
            x - np.float32(0.1) * client.update(x, round).vector
            for x, client in zip(before, clients_of(model, texts), strict=True)
        ]
        session.step()
        (sight,) = neighbours.see(round, transcript.records)
        transcript.records.clear()
        for watch, real in zip(neighbours.watch.watches, session.models(), strict=True):
            assert np.array_equal(watch.model, real)
        assert sight.observer == "neighbour"
        assert sight.visible == pytest.approx(0.25, abs=0.01)
        assert [target.clients for target in sight.targets] == [(k,) for k in range(5)]
        for victim, target in enumerate(sight.targets):
            share = [(target.model == x).mean() for x in trained]
            others = [(target.model == x).mean() for x in before]
            assert share[victim] > 0.2  # the victim's chunk, after its local step
            assert max(others) > 0.7  # in somebody else's last average


def test_what_others_receive_changes_nothing(model: CausalLM, texts: Texts) -> None:
    """An owner's view of its clients needs none of the messages that it never got."""
    federation, session, transcript = started(model, texts, ERIS(aggregators=5))
    session.step()
    both = []
    for records in (
        transcript.records,
        [r for r in transcript.records if r.sender == 1 or 1 in r.arrived],
    ):
        owners = Owners(transcript, federation.initial)
        (aggregator, _) = owners.see(1, records)
        both.append({target.clients: target.model for target in aggregator.targets})
    # Owner 1 watches client 0.
    assert np.array_equal(both[0][0,], both[1][0,])
    assert len(both[0]) == 5


def test_rows_of_all_observers(model: CausalLM, texts: Texts) -> None:
    told: list[str] = []
    found = list(rows(SETTINGS, model, TOKENISER.starts_word, texts, told.append))
    assert len(told) == steps(SETTINGS)
    assert [(row.method, row.observer, row.round) for row in found] == [
        ("fedavg", "server", 1),
        ("fedavg", "member", 1),
        ("fedavg", "server", 2),
        ("fedavg", "member", 2),
        ("eris", "aggregator", 1),
        ("eris", "aggregator", 2),
        ("shatter", "neighbour", 1),
        ("shatter", "neighbour", 2),
    ]
    for row in found:
        assert list(row.measures) == ["spv", "difference", "loss"]
        for measure in row.measures.values():
            assert measure.pooled.canaries == len(texts.included) == 20
            assert measure.roc.members == texts.included.sum()
    # Clients that memorise are found out by whoever gets their whole update.
    assert found[2].measures["difference"].roc.auc > 0.9
    assert as_table(SETTINGS, found).row_count == 24


def test_a_run_repeats(model: CausalLM, texts: Texts) -> None:
    sights = [
        [target.model for sight in observed(FedAvg(), SETTINGS, model, texts, lambda done: None)
         for target in sight.targets]
        for _ in range(2)
    ]  # fmt: skip
    assert all(np.array_equal(a, b) for a, b in zip(*sights, strict=True))


def test_texts_are_dealt_and_prompts_are_others(texts: Texts) -> None:
    assert texts.tokens.shape == (40, 9)
    assert (texts.tokens >= 0).all()
    assert texts.client.tolist() == [client for client in range(5) for _ in range(4)]
    assert texts.prompts.shape == (2, 9)
    with pytest.raises(InvalidSetting, match="texts is '0 that are long enough'"):
        deal(SETTINGS, TOKENISER, ["a b"], REVIEWS)


def test_a_federation_that_is_too_small_is_refused() -> None:
    for name, value in (("clients", 2), ("samples", 5), ("prompts", 0)):
        with pytest.raises(InvalidSetting, match=name):
            SpvExperiment(**{name: value})  # type: ignore[arg-type]
