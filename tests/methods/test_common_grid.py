"""A masked sum on a common grid as a method: its model, units and bytes, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from eris.core.combine import FixedPoint
from eris.core.errors import ErisError, InvalidSetting, MalformedMessage
from eris.core.rules import FedAvg
from eris.core.shards import RandomPlan
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.federation import Federation, RefusedWarning
from eris.methods.registry import create
from eris.protocol.agreement import Agreement
from eris.protocol.codec import encode
from eris.protocol.messages import Contribution, Result, Reveal, Snapshot
from eris.protocol.round.replica import Replica
from eris.protocol.schemes.grid import Grid, GridCoding
from eris.protocol.secure.simulated import Opener
from eris.protocol.secure.terms import SecureSums
from eris.protocol.settings import Settings
from eris.protocol.view import View
from eris.runtimes.faults import FaultPlan
from eris.session import Fit
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS, BITS = 300, 9, 4, 12
START = initial_model(N)
SAMPLES = [Crowd(CLIENTS, N).samples(client) for client in range(CLIENTS)]
WIDE: dict[str, Any] = {"range": 4.0}
"""What means of the crowd are within."""


def federation(
    agreed: dict[str, Any] | None = None, crowd: Crowd | None = None, **method: Any
) -> Federation:
    crowd = Crowd(CLIENTS, N) if crowd is None else crowd
    said: dict[str, Any] = {"samples": SAMPLES, "seed": 2, "rule": FedAvg(1.0)} | (agreed or {})
    return Federation(crowd, START, create("grid", **(WIDE | method)), **said)


def fitted(agreed: dict[str, Any] | None = None, **method: Any) -> tuple[Fit, Crowd]:
    crowd = Crowd(CLIENTS, N)
    fit = federation(agreed, crowd, **method).fit(ROUNDS, progress=False, record=True)
    return fit, crowd


def results(fit: Fit) -> list[Result]:
    assert fit.transcript is not None
    return [r.message for r in fit.transcript.records if isinstance(r.message, Result)]


# -- the model ------------------------------------------------------------------------------------


def slow_model(crowd: Crowd, parts: list[Any], average: str) -> tuple[Vector, list[list[int]]]:
    """The model by plain sums of integers, part by part with units of their own; and these."""
    weights = SAMPLES if average == "samples" else [1] * CLIENTS
    total, room = sum(weights), 2 ** (BITS - 1) - 1 - CLIENTS
    first = math.floor(math.log2(room / WIDE["range"]))
    model, units, seen = START.copy(), [first] * len(parts), []
    for round in range(1, ROUNDS + 1):
        sums = [np.zeros(len(part), np.int64) for part in parts]
        for client in range(CLIENTS):
            update = crowd.given[client, round][1].astype(np.float64)
            draws = Stream(2, "grid", round, client).uniform(0, N)
            for number, part in enumerate(parts):
                scaled = update[part] * 2.0 ** units[number] * weights[client] / total
                sums[number] += np.floor(scaled + draws[part]).astype(np.int64)
        for number, part in enumerate(parts):
            mean = (sums[number] / 2.0 ** units[number]).astype(np.float32)
            model[part] -= mean
            fits = math.floor(math.log2(room / (4 * float(np.abs(mean).max()))))
            units[number] = min(30, max(first, fits))
        seen.append(list(units))
    return model, seen


@pytest.mark.parametrize("average", ["samples", "plain"])
@pytest.mark.parametrize("agreed", [{}, {"segment_size": 70}], ids=["one", "segments"])
@pytest.mark.parametrize("aggregators", [None, 4])
def test_the_model_is_that_of_plain_integers(
    aggregators: int | None, agreed: dict[str, Any], average: str
) -> None:
    fit, crowd = fitted(agreed, aggregators=aggregators, average=average)
    agreement = federation(agreed, aggregators=aggregators).agreement
    assert agreement is not None
    parts = [segment.coordinates for segment in agreement.segments(1).values()]
    model, units = slow_model(crowd, parts, average)
    assert_same_bits(fit.model, model)
    last = {r.header.key: r.exponent for r in results(fit) if r.header.round == ROUNDS}
    assert [last[key] for key in agreement.keys] == units[-1]
    assert len({unit for row in units for unit in row}) > 1, "units follow the mean"


FIXED: list[dict[str, Any]] = [
    {"follows": False, "range": 8.0}, {"travelling": "weights", "range": 8.0},
    {"travelling": "weights", "range": 8.0, "rounding": "nearest"},
]  # fmt: skip


@pytest.mark.parametrize("method", FIXED, ids=["updates", "weights", "nearest"])
def test_on_a_grid_that_stays_the_cut_changes_no_bit(method: dict[str, Any]) -> None:
    whole = fitted(**method)[0].model
    for aggregators, agreed in ((4, {}), (None, {"segment_size": 41}), (3, {"segment_size": 9})):
        assert_same_bits(fitted(agreed, aggregators=aggregators, **method)[0].model, whole)


def test_on_a_grid_that_follows_the_first_round_has_the_same_bits_for_any_cut() -> None:
    """Later ones do not: a segment's unit follows its own mean."""
    made = [federation(agreed, aggregators=some).start(3)
            for some, agreed in ((None, {}), (4, {}), (3, {"segment_size": 9}))]  # fmt: skip
    for session in made:
        session.step()
    for session in made[1:]:
        assert_same_bits(session.model, made[0].model)
    for session in made:
        session.step()
        session.step()
    assert not np.array_equal(made[1].model, made[0].model)


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "fednova"])
def test_other_rules_get_the_mean(rule: str) -> None:
    plain = Federation(Crowd(CLIENTS, N), START, create("fedavg"), samples=SAMPLES, rule=rule,
                       seed=2).fit(ROUNDS, progress=False).model  # fmt: skip
    found = federation({"rule": rule}, Crowd(CLIENTS, N), bits=24).fit(ROUNDS, progress=False).model
    assert np.abs(found - plain).max() < 1e-3


# -- the unit -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::eris.federation.RefusedWarning")
def test_a_sum_that_wraps_is_withheld_and_the_unit_steps_back() -> None:
    fit, _ = fitted(range=0.25)
    first, second, *_ = results(fit)
    least = math.floor(math.log2((2047 - CLIENTS) / 0.25))
    assert first.payload is None
    assert first.exponent == least - 3
    assert second.payload is not None
    assert second.exponent >= least
    assert any("does not fit its check words" in why for r in fit.history for why in r.refused)


def test_a_mean_that_nobody_would_take_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nine clients five are late, and one of the others has words for all that are missing."""
    honest = GridCoding.integers

    def loud(self: GridCoding, pieces: Any, client: int, *about: Any) -> Any:
        made = honest(self, pieces, client, *about)
        if client:
            return made
        return {key: np.full_like(one, 2 ** (BITS - 2)) for key, one in made.items()}

    monkeypatch.setattr(GridCoding, "integers", loud)
    made = federation({"precision": FixedPoint(8.0)}, follows=False, range=8.0, average="plain")
    faults = FaultPlan(seed=1, straggle=0.3)
    with pytest.warns(RefusedWarning):
        fit = made.fit(1, progress=False, record=True, faults=faults)
    (said,) = fit.history[0].refused
    assert "withheld: result.payload.data: holds values beyond ±8" in said
    assert [one.included for one in results(fit)] == [frozenset()]
    assert_same_bits(fit.model, START)


def test_a_session_that_goes_on_elsewhere_has_its_units() -> None:
    whole, half = federation(aggregators=3).start(4), federation(aggregators=3).start(4)
    for _ in range(2):
        whole.step()
        half.step()
    state = half.state()
    named = [name for name in state if name.endswith("exponents")]
    assert named
    assert all(state[name].any() for name in named)
    resumed = federation(aggregators=3).start(4)
    resumed.restore(2, state)
    lost = federation(aggregators=3).start(4)
    lost.restore(2, state | {name: np.zeros_like(state[name]) for name in named})
    for _ in range(2):
        for session in (whole, resumed, lost):
            session.step()
    assert_same_bits(resumed.model, whole.model)
    assert not np.array_equal(lost.model, whole.model)


def agreement_of(**scheme: Any) -> Agreement:
    made = federation(**scheme).agreement
    assert made is not None
    return made


def withheld(agreement: Agreement, round: int, exponent: int) -> Result:
    header = agreement.header(agreement.view.owners[0], round, (0, 0))
    return Result(header, round - 1, frozenset(), 0, 0, None, exponent=exponent)


def test_results_snapshots_and_checkpoints_carry_the_exponent_and_digests_hold_it() -> None:
    agreement = agreement_of()
    ahead, behind, other = (Replica(agreement, START) for _ in range(3))
    first = ahead.exponent((0, 0), 1)
    for round, exponent in ((1, first + 2), (2, first - 3)):
        ahead.offer(withheld(agreement, round, exponent))
        assert ahead.exponent((0, 0), round + 1) == exponent
    snapshot = ahead.snapshot((0, 0), 0)
    assert snapshot.exponent == first - 3
    assert ahead.state_of((0, 0)) == Replica.state_in(snapshot)
    assert behind.adopt(snapshot)
    assert behind.exponent((0, 0), 3) == first - 3
    assert behind.digest((0, 0)) == ahead.digest((0, 0))
    other.restore(ahead.state())
    assert other.exponent((0, 0), 3) == first - 3
    other.offer(withheld(agreement, 3, first))
    ahead.offer(withheld(agreement, 3, first + 1))
    assert other.digest((0, 0)) != ahead.digest((0, 0))
    with pytest.raises(InvalidSetting, match="no fitting 'exponents'"):
        other.restore({k: v for k, v in ahead.state().items() if k != "exponents"})


def test_units_that_no_owner_names_are_refused() -> None:
    fresh, fixed = Replica(agreement_of(), START), agreement_of(follows=False)
    with pytest.raises(MalformedMessage, match="at most 30"):
        fresh.offer(withheld(fresh.agreement, 1, 31))
    with pytest.raises(MalformedMessage, match="no unit follows"):
        Replica(fixed, START).offer(withheld(fixed, 1, 5))
    snapshot = Replica(agreement_of(), START).snapshot((0, 0), 0)
    wrong = Snapshot(snapshot.header, 3, 1, snapshot.model, None, (), b"", (), 5)
    with pytest.raises(MalformedMessage, match="no unit follows"):
        Replica(fixed, START).adopt(wrong)


# -- what travels ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_contribution_is_b_bits_a_value_and_400_bytes(bits: int) -> None:
    fit, _ = fitted(bits=bits)
    assert fit.transcript is not None
    sent = [r for r in fit.transcript.records if isinstance(r.message, Contribution)]
    for record in sent:
        message = record.message
        assert isinstance(message, Contribution)
        law = 400 + -(-bits * N // 8)
        assert len(message.payload.encoded.data) == law
        assert len(record.data) <= law + 64
        assert message.samples == message.steps == 0
    answers = [r.message for r in fit.transcript.records if isinstance(r.message, Reveal)]
    assert max(len(a.data) for a in answers) == 66 + -(-bits * N // 8)
    for one in results(fit):
        bare = Result(one.header, one.previous, one.included, one.samples, one.sample_steps,
                      one.payload, one.digest, one.closed)  # fmt: skip
        assert len(encode(one)) == len(encode(bare)) + 2


def test_an_owner_with_helpers_reads_a_client_and_nobody_else_does() -> None:
    crowd = Crowd(CLIENTS, N)
    made = federation({}, crowd)
    fit = made.fit(2, progress=False, record=True)
    assert fit.transcript is not None
    assert made.agreement is not None
    opener = Opener(made.agreement)
    last = {r.header.round: r.exponent for r in results(fit)}
    for record in fit.transcript.records:
        message = record.message
        if not isinstance(message, Contribution) or message.header.round != 2:
            continue
        client, members = message.header.sender, opener.openers(0)
        assert opener.read(message, members - {made.agreement.view.owners[0]}) is None
        read = opener.read(message, members)
        assert read is not None
        unit = 2.0 ** -last[1] * sum(SAMPLES) / SAMPLES[client]
        assert read[1] == SAMPLES[client]
        assert np.abs(read[0] - crowd.given[client, 2][1]).max() <= unit * 1.001
        with pytest.raises(ErisError, match="masked"):
            made.agreement.coding.read(message, made.agreement.segments(2)[0, 0])


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "agreed", "found"),
    [
        ({"bits": 7}, {}, "bits is 7; expected 8 to 32"),
        ({"bits": 33}, {}, "bits is 33"),
        ({"secure": "none"}, {}, "secure_sums is 'none'; expected some, such as"),
        ({"travelling": "noise"}, {}, "travelling is 'noise'; expected one of weights, updates"),
        ({"rounding": "up"}, {}, "rounding is 'up'; expected one of stochastic, nearest"),
        ({"average": "median"}, {}, "average is 'median'"),
        ({"range": -1.0}, {}, "range is -1.0; expected a positive number"),
        ({"range": 65.0}, {}, "range is 65.0; expected at most value_range = 64"),
        ({"travelling": "weights", "follows": True}, {}, "follows is True; expected False"),
        ({}, {"samples": None}, "they scale what is sent"),
        ({}, {"sampled": 6}, "average=plain"),
        ({}, {"rule": "coordinate-median"}, "masked sums give no single contributions"),
        ({}, {"min_included": 3}, "min_included is 3; expected at least 4"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    method: dict[str, Any], agreed: dict[str, Any], found: str
) -> None:
    with pytest.raises(InvalidSetting, match=found) as told:
        federation(agreed, **method)
    assert "\n" not in str(told.value)


def test_more_clients_than_words_have_room_for_are_refused() -> None:
    crowd = Crowd(33, N)
    with pytest.raises(InvalidSetting, match="clients is 33; expected at most 32 where words"):
        Federation(crowd, START, create("grid", bits=8), samples=[1] * 33)


def test_turns_and_words_of_whole_bytes_are_refused_where_a_unit_follows() -> None:
    agreed: dict[str, Any] = {"n": N, "scheme": Grid(), "min_included": 4}
    masks = SecureSums.parse("2 of 3")
    assert Settings(secure=masks, **agreed).scheme == Grid()
    with pytest.raises(InvalidSetting, match="rotate is 2; expected 0 where the grid follows"):
        Settings(secure=masks, plan=RandomPlan(1, 2), **agreed)
    with pytest.raises(InvalidSetting, match="ring_bytes is 6; expected 8"):
        Settings(secure=SecureSums.parse("2 of 3", 6), **agreed)


def test_a_weight_beyond_the_range_is_refused_whole_and_by_name() -> None:
    with pytest.warns(RefusedWarning, match="client-"):
        fit = federation(travelling="weights", range=1.0).fit(1, progress=False)
    assert any("beyond the grid's range of ±1" in why for why in fit.history[0].refused)


def test_a_client_with_more_samples_than_it_declared_is_refused() -> None:
    declared = [1, *SAMPLES[1:]]
    fewer = {"samples": [1] * CLIENTS}
    assert declared != SAMPLES or SAMPLES[1] > 1
    with pytest.raises(InvalidSetting, match="at most the 1 that were declared"):
        federation(fewer).fit(1, progress=False)


def test_what_is_agreed_on_comes_back_from_its_text() -> None:
    settings = agreement_of(bits=10).settings
    assert Settings.from_canonical(settings.canonical) == settings


def test_clients_can_be_sampled_where_the_average_is_plain() -> None:
    fit = federation({"sampled": 6}, average="plain").fit(3, progress=False)
    assert [one.included for one in fit.history] == [1.0] * 3


def test_a_view_that_grew_too_large_or_lacks_samples_is_not_trained_in() -> None:
    scheme, names = Grid(8), [f"client-{k}" for k in range(40)]
    assert not scheme.serves(View.central(names, samples=(1,) * 40))
    assert scheme.serves(View.central(names[:32], samples=(1,) * 32))
    assert not scheme.serves(View.central(names[:32]))
    coding = agreement_of().coding
    assert isinstance(coding, GridCoding)
    assert coding.largest_mean > FixedPoint().value_range


def test_on_the_clock_the_model_and_its_units_are_the_same() -> None:
    """Messages come late, twice and in any order; members are the network's own machines."""
    shuffled = FaultPlan(seed=1, delay=0.5, duplicate=0.2, longest_delay=1.5)
    patient = {"close_after": 30.0, "catch_up_after": 40.0}
    clock = federation(patient, average="plain", aggregators=4).start(3, faults=shuffled)
    step = federation(patient, average="plain", aggregators=4).start(3)
    for _ in range(3):
        clock.step()
        step.step()
    assert_same_bits(clock.model, step.model)
