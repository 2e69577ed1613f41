"""The attacks as a plain call: a user's model, loss, observed update and samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from eris.audit.alignment import Aligner
from eris.audit.call import attack
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.experiments.audits.auditing import by_round
from eris.protocol.observers import Observer
from support import audits
from support.levels import tells

COUNT, RATE = 60, 0.5


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))


def digits(start: int = 0) -> tuple[Tensor, Tensor]:
    data: Any = load_digits()
    some = slice(start, start + COUNT)
    images = torch.from_numpy((data.data[some] / 16).astype(np.float32))
    return images, torch.from_numpy(data.target[some])


def gradient(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """What a client with these samples sends."""
    loss = functional.cross_entropy(model(inputs), targets)
    found = torch.autograd.grad(loss, list(model.parameters()))
    return dict(zip(dict(model.named_parameters()), found, strict=True))


def flat(update: dict[str, Tensor]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return torch.cat([piece.reshape(-1) for piece in update.values()]).numpy()


def coins(count: int, purpose: str = "coins") -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return Stream(3, purpose).uniform(0, count) < 0.5


def test_scores_are_what_their_names_say() -> None:
    model, (inputs, targets) = network(), digits()
    update = gradient(model, inputs[:5], targets[:5])
    seen = coins(len(flat(update)), "mask")
    found = attack(
        model, functional.cross_entropy, update, inputs, targets, mask=seen, learning_rate=RATE
    )
    g = flat(update)
    for place in (0, 7, 41):
        own = flat(gradient(model, inputs[place : place + 1], targets[place : place + 1]))
        inner = float(g[seen] @ own[seen])
        norms = float(np.linalg.norm(own[seen])), float(np.linalg.norm(g[seen]))
        assert found.scores["aligned"][place] == pytest.approx(inner, rel=1e-4, abs=1e-7)
        assert found.scores["paper"][place] == found.scores["aligned"][place]
        assert found.scores["normalised"][place] == pytest.approx(inner / norms[0], rel=1e-4)
        assert found.scores["cosine"][place] == pytest.approx(
            inner / (norms[0] * norms[1]), rel=1e-4
        )
    assert found.visible == seen.sum()
    assert found.share == seen.sum() / len(seen)
    assert not found.findings


def test_the_loss_is_that_of_the_model_moved_by_what_was_seen() -> None:
    model, (inputs, targets) = network(), digits()
    update = gradient(model, inputs[:5], targets[:5])
    name = next(iter(update))
    found = attack(
        model, functional.cross_entropy, {name: update[name]}, inputs, targets, learning_rate=RATE
    )
    moved = network()
    with torch.no_grad():
        dict(moved.named_parameters())[name].sub_(RATE * update[name])
        losses = functional.cross_entropy(moved(inputs), targets, reduction="none")
    np.testing.assert_allclose(found.scores["loss"], -losses.numpy(), rtol=1e-5)
    assert found.visible == update[name].numel()
    # Without a step nobody knows how far the update moves the model; the lender's is not moved.
    unknown = attack(model, functional.cross_entropy, update, inputs, targets)
    assert "loss" not in unknown.scores
    for mine, as_made in zip(model.parameters(), network().parameters(), strict=True):
        assert torch.equal(mine, as_made)


def test_new_weights_say_what_the_update_says() -> None:
    model, (inputs, targets) = network(), digits()
    update = gradient(model, inputs[:5], targets[:5])
    weights = {
        name: parameter.detach() - RATE * update[name]
        for name, parameter in model.named_parameters()
    }
    loss = functional.cross_entropy
    one = attack(model, loss, update, inputs, targets, learning_rate=RATE)
    other = attack(model, loss, weights, inputs, targets, sent="weights", learning_rate=RATE)
    unknown = attack(model, loss, weights, inputs, targets, sent="weights")
    for name in one.scores:
        np.testing.assert_allclose(
            other.scores[name], one.scores[name], rtol=2e-3, atol=2e-4, err_msg=name
        )
    # The step is only a scale: the model that was sent is the same.
    np.testing.assert_allclose(unknown.scores["loss"], other.scores["loss"], atol=1e-5)
    np.testing.assert_allclose(unknown.scores["cosine"], other.scores["cosine"], atol=1e-4)


def test_a_reference_undoes_the_shift() -> None:
    model, (inputs, targets) = network(), digits()
    loss, update = functional.cross_entropy, flat(gradient(model, inputs[:5], targets[:5]))
    reference = Stream(1, "reference").normal(0, len(update)).astype(np.float32)
    shifted = attack(model, loss, update - reference, inputs, targets, reference=reference)
    plain = attack(model, loss, update, inputs, targets)
    np.testing.assert_allclose(shifted.scores["joint"], plain.scores["joint"], atol=1e-3)
    np.testing.assert_allclose(shifted.scores["aligned"], plain.scores["aligned"], atol=1e-3)
    gap = np.abs(shifted.scores["paper"] - plain.scores["paper"]).max()
    assert gap > 0.1


def test_members_are_found_and_a_bound_needs_coins() -> None:
    model, (inputs, targets) = network(), digits()
    truth = coins(COUNT)
    update = gradient(model, inputs[truth], targets[truth])
    loss = functional.cross_entropy
    found = attack(model, loss, update, inputs, targets, included=truth, coins=True)
    assert set(found.findings) == set(found.scores)
    joint = found.findings["joint"]
    assert joint.roc.auc > 0.95
    assert joint.bound is not None
    assert 1.5 < joint.bound.epsilon < joint.bound.ceiling
    assert truth[found.highest()].all()
    assert found.highest("cosine", 3).tolist() == np.argsort(-found.scores["cosine"])[:3].tolist()
    unfair = attack(model, loss, update, inputs, targets, included=truth).findings["joint"]
    assert (unfair.bound, unfair.no_bound) == (None, "membership was not decided by fair coins")
    assert unfair.roc == joint.roc
    # An update of other people's samples tells nothing of these.
    others = gradient(model, *digits(start=COUNT))
    for name, scores in attack(model, loss, others, inputs, targets).scores.items():
        assert not tells(scores, truth), name
    assert tells(found.scores["joint"], truth)


def test_several_clients_are_each_asked_about_their_own_samples() -> None:
    model, (inputs, targets) = network(), digits()
    client = np.arange(COUNT) % 3 + 4
    truth = coins(COUNT)
    updates = {
        one: gradient(model, inputs[truth & (client == one)], targets[truth & (client == one)])
        for one in (4, 5, 6)
    }
    loss = functional.cross_entropy
    mask = {4: coins(910, "four"), 5: np.ones(910, np.bool_), 6: np.ones(910, np.bool_)}
    found = attack(model, loss, updates, inputs, targets, client=client, mask=mask)
    for one in (4, 5, 6):
        mine = client == one
        alone = attack(model, loss, updates[one], inputs, targets, mask=mask[one])
        for score in ("aligned", "normalised", "cosine"):
            np.testing.assert_allclose(found.scores[score][mine], alone.scores[score][mine])
    assert found.visible == pytest.approx((mask[4].sum() + 2 * 910) / 3)
    judged = attack(model, loss, updates, inputs, targets, client=client, included=truth)
    assert judged.findings["joint"].roc.auc > 0.9
    assert judged.findings["joint"].paper is not None


def test_one_candidate_is_enough_for_a_score() -> None:
    model, (inputs, targets) = network(), digits()
    update = gradient(model, inputs[:1], targets[:1])
    found = attack(model, functional.cross_entropy, update, inputs[:1], targets[:1])
    assert found.scores["cosine"].tolist() == [pytest.approx(1, abs=1e-5)]


def test_the_call_scores_as_the_audit_of_a_run_does() -> None:
    subject, transcript = audits.subject("dsc")
    everyone = Observer("coalition", frozenset({0, 1, 2, 3}))
    watch = audits.watch("dsc", [everyone])
    rounds = by_round(transcript)
    for _ in watch.follow(1, rounds[1]):
        pass
    (sight,) = watch.follow(2, rounds[2])
    samples, candidates = subject.samples, subject.candidates
    aligner = Aligner(candidates, sight)
    for place, row in samples.gradients(sight.model):
        aligner.add(place, row)
    expected = aligner.finish()
    updates, masks, reference = {}, {}, np.zeros(len(sight.model), np.float32)
    for client in candidates.clients:
        pieces = sight.pieces(client)
        assert pieces is not None
        values, seen = np.zeros(len(sight.model), np.float32), np.zeros(len(sight.model), np.bool_)
        values[pieces.coordinates], seen[pieces.coordinates] = pieces.sent, True
        reference[pieces.coordinates] = pieces.update - pieces.sent
        updates[client], masks[client] = values, seen
    samples.flat.write(samples.flat.checked(sight.model))
    found = attack(
        samples.flat.module, subject.loss, updates, candidates.inputs, candidates.targets,
        mask=masks, reference=reference, client=candidates.client,
    )  # fmt: skip
    for name, scores in expected.scores.items():
        np.testing.assert_allclose(found.scores[name], scores[0], rtol=1e-3, atol=1e-6)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.full, self.norm = nn.Linear(64, 10), nn.BatchNorm1d(10)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.norm(self.full(inputs))
        return found


def test_batch_norm_takes_a_choice() -> None:
    (inputs, targets), model = digits(), Normed()
    update = {"full.weight": torch.ones(10, 64)}
    with pytest.raises(InvalidSetting, match="running"):
        attack(model, functional.cross_entropy, update, inputs, targets)
    found = attack(
        model, functional.cross_entropy, update, inputs, targets, running_statistics="ignore"
    )
    assert found.visible == 640


INPUTS, TARGETS = digits()
GOOD = np.ones(910, np.float32)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"update": GOOD[1:]}, r"update is 'float32 of shape \(909,\)'; .*\(910,\)"),
    ({"update": {"0.wieght": torch.ones(12, 64)}}, "name in the update is '0.wieght'; .*0.weight"),
    ({"update": {"0.weight": torch.ones(64, 12)}}, r"update of 0.weight is .*shape \(12, 64\)"),
    ({"update": GOOD * np.nan}, "update is 'not finite'"),
    ({"update": {1: GOOD}}, "update is 'by client'; .*`client`"),
    ({"client": np.zeros(COUNT, np.int64)}, "update is 'of one client'"),
    ({"update": {1: GOOD}, "client": np.zeros(COUNT, np.int64)},
     "client of a candidate is 0; expected one that was observed: 1"),
    ({"mask": GOOD}, r"mask is 'float32 .*truth values"),
    ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ({"sent": "model"}, "sent is 'model'; expected update or weights"),
    ({"included": np.ones(COUNT, np.bool_)}, "60 of 60 in"),
    ({"included": np.ones(3, np.bool_)}, "included is "),
    ({"inputs": INPUTS[:, :5]}, r"candidates is 'torch.float32 of shape \(60, 5\)'; expected what"),
    ({"targets": TARGETS + 5}, "expected what the model and the loss take"),
    ({"targets": TARGETS[:3]}, "targets is '3 long'"),
    ({"inputs": INPUTS * np.inf}, "loss of candidate 0 is nan"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), BAD, ids=[says for _, says in BAD])
def test_what_does_not_fit_is_refused(given: dict[str, Any], says: str) -> None:
    asked: dict[str, Any] = {"update": GOOD, "inputs": INPUTS, "targets": TARGETS, **given}
    with pytest.raises(InvalidSetting, match=says):
        attack(network(), functional.cross_entropy, **asked)


def test_an_unknown_score_is_named() -> None:
    found = attack(network(), functional.cross_entropy, GOOD, INPUTS, TARGETS)
    with pytest.raises(InvalidSetting, match="expected one of paper, aligned"):
        found.highest("jiont")
