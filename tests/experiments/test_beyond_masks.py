"""What masks do not prevent: sums over chosen sets, and a false model. Noise is what stops it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits import beyond_masks
from eris.experiments.audits.beyond_masks import MaskSettings, line, shown_as
from eris.experiments.audits.choosing import (
    LIAR,
    OWNERS,
    VICTIM,
    ChosenSets,
    DigitClients,
    chosen_sets,
)
from eris.experiments.audits.false_model import read_samples
from eris.experiments.audits.opened_sums import Late, Lie, opened_rounds
from eris.training.flat import parameter_count
from support.command import Eris

EIGHT = DigitClients(8, 16)
N = parameter_count(EIGHT.federation().population._flat.module)  # type: ignore[attr-defined]


def test_a_lying_owner_changes_the_sets_of_its_own_shard_and_a_late_client_all() -> None:
    few = DigitClients(8, 4, width=16)
    first, second = opened_rounds(few.federation(), 2, lie=Lie(LIAR, (VICTIM, 2)))
    assert set(first.weights.tolist()) == {32}
    agreement = few.federation().agreement
    assert agreement is not None
    held = agreement.coding.coordinates(1, (LIAR, 0), 0)
    assert np.array_equal(np.flatnonzero(second.weights == 28), np.sort(held))
    assert set(second.weights.tolist()) == {28, 32}
    _, late = opened_rounds(few.federation(), 2, faults=Late(VICTIM, 2))
    assert set(late.weights.tolist()) == {28}


@pytest.mark.parametrize("lies", [True, False], ids=["chosen", "dropout"])
def test_the_difference_of_two_sums_is_the_client_that_one_lacks(lies: bool) -> None:
    found = chosen_sets(EIGHT, 5, lies=lies)
    assert found.coordinates == (pytest.approx(N / OWNERS, abs=1) if lies else N)
    assert found.cosine > 0.9
    assert found.difference > 0.95
    assert found.one_sum < 0.8, "inside one sum it is hidden among others"


@pytest.mark.parametrize("lies", [True, False], ids=["chosen", "dropout"])
def test_shared_noise_leaves_nothing_of_it(lies: bool) -> None:
    """The AUC of 16 against 16 at chance has a deviation of 0.1."""
    found = chosen_sets(replace(EIGHT, epsilon=8.0), 5, lies=lies)
    assert abs(found.cosine) < 0.2
    assert found.difference < 0.75
    hardly = chosen_sets(replace(EIGHT, epsilon=1e5), 5, lies=lies)
    assert hardly.difference > 0.95, "it is noise that stops it, not what comes with it"


def test_one_false_result_lets_the_next_mean_hold_samples_and_noise_does_not() -> None:
    world = DigitClients(8, 16, width=256, rounds=160)
    found = read_samples(world)
    assert found.biases == pytest.approx(256 / OWNERS, abs=8)
    assert found.own > found.biases // 5
    assert found.own > 2 * found.honest, "an eighth of the units shows more than all of them did"
    noisy = read_samples(replace(world, epsilon=8.0))
    assert (noisy.own, noisy.all, noisy.honest) == (0, 0, 0)
    assert read_samples(replace(world, epsilon=1e11)).own > 3, "clipping does not stop it"


def test_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MaskSettings(instances=2, only="choosing", runs=str(tmp_path))
    seeds: list[int] = []

    def measured(world: DigitClients) -> ChosenSets:
        seeds.append(world.seed)
        return ChosenSets(0.9, 0.5 + 0.1 * world.seed, 0.5, 7)

    monkeypatch.setitem(beyond_masks.MEASURED, "choosing", ((EIGHT,), measured))
    first = line("choosing", EIGHT, settings)
    assert (seeds, first["figures"]["difference"]["mean"]) == ([0, 1], pytest.approx(0.55))
    assert line("choosing", EIGHT, settings) == first
    assert seeds == [0, 1], "what is done is not done again"
    line("choosing", EIGHT, replace(settings, seed=3))
    assert seeds[2:] == [3000, 3001]
    rows: Any = shown_as("choosing", [first], settings)
    assert [column.header for column in rows.columns][:2] == ["clients × samples", "ε"]
    beyond_masks.main(["--instances", "2", "--only", "choosing", "--runs", str(tmp_path)])


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"only is 'dropouts'; expected .*dropout"):
        MaskSettings(only="dropouts")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            ("mnist", "--only", "dropout"),
            "none: only audit-completion, audit-choosing, shared-noise",
        ),
        (
            ("shared-noise", "--instances", "3"),
            "none: only audit-completion, audit-choosing have it",
        ),
        (
            ("audit-choosing", "--only", "sets"),
            "expected one of all, choosing, dropout, false-model",
        ),
        (("audit-choosing", "--attack", "rog"), "chosen in audit-defences and audit-visible only"),
    ],
)
def test_the_command_refuses_what_an_experiment_does_not_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    given: tuple[str, ...], expected: str,
) -> None:  # fmt: skip
    eris = Eris(monkeypatch, capsys)
    assert eris("reproduce", *given, "--runs", str(tmp_path)) == 2
    assert expected in eris.err
    assert len(eris.err.splitlines()) == 1
