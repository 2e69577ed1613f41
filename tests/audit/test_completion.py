"""Completion of linear layers: reference figures at small counts, what is determined, traps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from eris.audit import completion, determined, low_rank
from eris.audit.completion import BFLOAT16, FLOAT16, FLOAT32, CompletedLayer, complete
from eris.audit.low_rank import Choice, Entries, Factors, Matrix
from eris.core.errors import InvalidSetting
from eris.core.shards import ContiguousPlan, InterleavedPlan, ShardPlan
from eris.core.streams import Stream
from eris.experiments.audits.completion_cases import FIRST, LayerCase, case, perceptron
from eris.experiments.audits.completion_grid import best_decibels
from eris.models.lenet import lenet5
from eris.training.flat import FlatParameters


def normal(purpose: str, *shape: int) -> Matrix:
    return Stream(5, purpose).normal(0, int(np.prod(shape))).reshape(shape)


def relu_layer(rows: int, columns: int, samples: int) -> Matrix:
    """A layer whose errors are zero by half, as ReLU makes them."""
    errors = np.maximum(normal("errors", rows, samples), 0)
    return errors @ normal("inputs", samples, columns)


def shown(rows: int, columns: int, share: float) -> Choice:
    draws = Stream(6, "shown").uniform(0, rows * columns)
    return draws.reshape(rows, columns) < share


def error(found: CompletedLayer, truth: Matrix) -> float:
    """Of what is called determined."""
    part = np.ix_(found.rows, found.columns)
    return float(np.linalg.norm(found.matrix[part] - truth[part]) / np.linalg.norm(truth[part]))


def judged(one: LayerCase, found: CompletedLayer) -> tuple[bool, float]:
    parts = (found.rows, found.columns, found.left, found.right)
    return found.certified and one.success(*parts), one.error(*parts)


@cache
def completed(samples: int, shards: int, count: int) -> list[tuple[LayerCase, CompletedLayer]]:
    cases = [case(seed, samples, shards) for seed in range(count)]
    return [(one, complete(one.entries, samples=samples)) for one in cases]


# -- reference figures (completion.md, section 7) ---------------------------------------------


@pytest.mark.parametrize(
    ("samples", "shards", "count", "least"),
    [(4, 16, 6, 5), (2, 16, 4, 4), (4, 8, 3, 3), (8, 8, 2, 2)],
)
def test_one_shard_of_many_is_the_layer(samples: int, shards: int, count: int, least: int) -> None:
    found = [judged(one, layer) for one, layer in completed(samples, shards, count)]
    assert sum(good for good, _ in found) >= least
    assert max(off for _, off in found) < 1e-3, "nothing that is called determined is wrong"
    assert np.median([off for _, off in found]) < 1e-4
    assert all(layer.residual < FLOAT32 for _, layer in completed(samples, shards, count))


@pytest.mark.parametrize(("shards", "share"), [(16, 0.999), (32, 0.974), (50, 0.924)])
def test_one_sample_is_known_as_far_as_it_hangs_together(shards: int, share: float) -> None:
    found = completed(1, shards, 5)
    assert np.mean([layer.columns.mean() for _, layer in found]) == pytest.approx(share, abs=0.02)
    for one, layer in found:
        assert judged(one, layer)[1] < 1e-6


def test_below_the_bound_the_fit_is_stuck_and_says_so() -> None:
    one = case(0, 8, 16)
    found = complete(one.entries, samples=8, tries=2)
    assert (found.why, found.certified) == ("stuck", False)
    assert found.residual > 1e3 * FLOAT32, "orders of magnitude away from a solution"
    assert not found.columns.any()
    assert np.isnan(found.matrix).all()
    few = complete(one.entries, samples=16)
    assert few.why == "count"
    assert few.redundancy < 0


def test_rounds_on_the_same_samples_add_up() -> None:
    """Eight samples, A = 16: nothing in one round, everything in two."""
    good = [judged(one, complete(one.entries, samples=8))
            for one in (case(seed, 8, 16, rounds=2) for seed in (1, 2))]  # fmt: skip
    assert any(success for success, _ in good)
    assert max(off for _, off in good) < 1e-3


def test_a_fit_that_few_rows_and_columns_hold_back_is_loosened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four samples, A = 32, four rounds: of such, four in twenty were stuck at 10⁻² and below."""
    one = case(2, 4, 32, rounds=4)
    assert judged(one, complete(one.entries, samples=4))[0]
    monkeypatch.setattr(low_rank, "NEAR", 0.0)
    assert complete(one.entries, samples=4).why == "stuck"


def test_small_rows_of_later_rounds_need_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four samples, A = 32, four rounds in which the loss falls."""
    one = case(0, 4, 32, rounds=4)
    found = complete(one.entries, samples=4)
    assert judged(one, found)[0]
    assert (best_decibels(one, found.left, found.right, found.residual) > 30).all()

    def alike(entries: Entries, tolerance: float) -> Matrix:
        return np.ones(entries.shape[0])

    monkeypatch.setattr(completion, "_row_sizes", alike)
    unscaled = complete(one.entries, samples=4)
    assert not unscaled.certified or not judged(one, unscaled)[0]


def test_how_many_samples_there_are_need_not_be_known() -> None:
    one = case(3, 3, 8)
    found = complete(one.entries)
    assert found.samples == 3
    assert judged(one, found)[0]


# -- precision --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "tolerance"), [("float16", FLOAT16), ("bfloat16", BFLOAT16)])
def test_low_precision_is_no_defence(kind: str, tolerance: float) -> None:
    one = case(1, 4, 8)
    values = torch.from_numpy(one.entries.values).to(getattr(torch, kind)).double().numpy()
    entries = Entries(one.entries.rows, one.entries.columns, values, one.entries.shape)
    assert complete(entries, samples=4, tries=1).why == "stuck", "not at the precision of float32"
    found = complete(entries, samples=4, tolerance=tolerance)
    assert found.certified
    assert judged(one, found)[1] < 2 * tolerance
    assert (best_decibels(one, found.left, found.right, found.residual) > 50).all()


def test_noise_is_averaged_by_the_fit() -> None:
    one, noise = case(1, 4, 8), 0.01
    size = np.sqrt(np.mean(one.entries.values**2))
    values = one.entries.values + noise * size * normal("noise", len(one.entries))
    entries = Entries(one.entries.rows, one.entries.columns, values, one.entries.shape)
    found = complete(entries, samples=4, tolerance=1.5 * noise)
    assert found.certified
    assert judged(one, found)[1] < noise


# -- certificates and what is determined ------------------------------------------------------


def test_what_has_no_low_rank_is_not_certified() -> None:
    found = complete(normal("full", 40, 50), shown(40, 50, 0.7), samples=3)
    assert found.why == "stuck"
    found = complete(normal("full", 40, 50), shown(40, 50, 0.7), samples=1)
    assert found.why == "stuck"


def test_one_wrong_entry_of_many_is_noticed() -> None:
    truth, seen = relu_layer(60, 80, 2), shown(60, 80, 0.5)
    assert complete(truth, seen, samples=2).certified
    row, column = np.argwhere(seen)[100]
    truth[row, column] += 0.1
    assert complete(truth, seen, samples=2).why == "stuck"


def test_a_column_whose_visible_rows_miss_a_direction_is_not_called_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its residual is zero, its values are wrong; without the test of the span it would be told."""
    truth, seen = relu_layer(60, 80, 2), shown(60, 80, 0.5)
    first_only = np.flatnonzero((np.maximum(normal("errors", 60, 2), 0) > 0) @ [1, 2] == 1)
    seen[:, 7] = False
    seen[first_only[:6], 7] = True
    found = complete(truth, seen, samples=2)
    assert found.certified
    assert not found.columns[7]
    assert np.isnan(found.matrix[:, 7]).all()
    assert error(found, truth) < 1e-6

    def everything(entries: Entries, factors: Factors, seed: int) -> tuple[Choice, Choice]:
        return np.ones(entries.shape[0], np.bool_), np.ones(entries.shape[1], np.bool_)

    monkeypatch.setattr(completion, "determined", everything)
    assert error(complete(truth, seen, samples=2), truth) > 1e-3


def test_a_row_that_leans_on_one_column_is_not_called_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """24 entries of background and one of an image: what is not exact in that one is magnified."""
    one = case(3, 2, 32)

    def error() -> float:
        found = complete(one.entries, samples=2)
        assert found.certified
        return one.error(found.rows, found.columns, found.left, found.right)

    assert error() < 1e-4
    monkeypatch.setattr(determined, "STEADY", 0.0)
    assert error() > 1e-3


def test_zeros_that_dead_units_show_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = relu_layer(60, 80, 2)
    alive = (truth != 0).any(axis=1)
    truth[:, 3] = 0  # a pixel that is zero in all samples
    seen = shown(60, 80, 0.5)
    seen[:, 5] = ~alive  # seen where units are dead, and nowhere else
    assert seen[:, 5].sum() >= 5
    found = complete(truth, seen, samples=2)
    assert (found.matrix[found.rows][:, 3] == 0).all(), "of a pixel that is zero enough was seen"
    assert not found.columns[5]
    assert found.rows[~alive].any(), "dead units are known as such"

    def spanned(pattern: csr_array, factor: Matrix, counted: Choice) -> Matrix:
        return np.ones((pattern.shape[0], factor.shape[1]))

    monkeypatch.setattr(determined, "_singular", spanned)
    assert complete(truth, seen, samples=2).columns[5], "the test of the span is what told"


def test_parts_that_do_not_hang_together_are_not_completed() -> None:
    truth = np.outer(1 + np.arange(30.0), 2 + np.arange(20.0))
    seen = np.zeros((30, 20), np.bool_)
    seen[:20, :14], seen[20:, 14:] = True, True
    found = complete(truth, seen, samples=1)
    assert found.columns.tolist() == [True] * 14 + [False] * 6
    assert found.rows.sum() == 20


def test_more_samples_than_the_rank_mislead_nobody() -> None:
    """Samples of one label, or a last layer, have errors of a lower rank."""
    truth = relu_layer(60, 80, 2)
    found = complete(truth, shown(60, 80, 0.7), samples=3)
    if found.columns.any():
        assert error(found, truth) < 1e-3


@pytest.mark.parametrize("plan", [ContiguousPlan(16), InterleavedPlan(16)])
def test_other_plans_show_rows_or_columns(plan: ShardPlan) -> None:
    """Whole rows give the row space away; the same pixels of every row give these, never others."""
    one = case(4, 4, 2)
    flat = FlatParameters(perceptron(4))
    held = plan.at(len(flat)).coordinates(3)
    shown = FIRST.within(flat).entries(held, flat.read().numpy()[held])
    seen = np.zeros(one.truth.shape, np.bool_)
    seen[shown.rows, shown.columns] = True
    found = complete(one.truth, seen, samples=4)
    assert found.certified
    assert error(found, one.truth) < 1e-3
    if isinstance(plan, ContiguousPlan):
        assert found.columns.mean() > 0.99
        assert 10 <= found.rows.sum() <= 30, "those it holds, and what else is zero"
    else:
        assert found.columns.sum() <= 50


def test_a_convolution_has_full_rank() -> None:
    network = lenet5(0)
    images = torch.from_numpy(case(0, 4, 2).inputs).reshape(4, 1, 28, 28)
    loss = torch.nn.functional.cross_entropy(network(images), torch.arange(4))
    torch.autograd.backward(loss)
    gradients = {name: p.grad for name, p in network.named_parameters() if p.dim() == 4}
    second = list(gradients.values())[1]
    assert second is not None
    assert np.linalg.matrix_rank(second.reshape(16, -1).numpy(), tol=1e-6) == 16


# -- refusals ---------------------------------------------------------------------------------


def test_bad_input_is_refused_by_name() -> None:
    layer, seen = np.ones((4, 5)), np.ones((4, 5), np.bool_)
    with pytest.raises(InvalidSetting, match=r"mask is .*\(5, 4\).* expected .*\(4, 5\)"):
        complete(layer, seen.T)
    with pytest.raises(InvalidSetting, match="mask is 'int64 of shape"):
        complete(layer, seen.astype(np.int64))
    with pytest.raises(InvalidSetting, match=r"layer is \(4,\); expected a matrix"):
        complete(layer[:, 0])
    with pytest.raises(InvalidSetting, match="layer is 'not finite'"):
        complete(layer * np.nan, seen)
    with pytest.raises(InvalidSetting, match="samples is 0"):
        complete(layer, seen, 0)
    with pytest.raises(InvalidSetting, match="tolerance is 0"):
        complete(layer, seen, 1, tolerance=0)
    with pytest.raises(InvalidSetting, match="mask is 'given'"):
        complete(Entries.of(layer, seen), seen)
    with pytest.raises(InvalidSetting, match="rounds is 'none'"):
        Entries.stacked([])
    hidden = np.where(seen, np.nan, 1.0)
    assert complete(hidden, ~seen).why == "count", "what was not seen does not matter"
