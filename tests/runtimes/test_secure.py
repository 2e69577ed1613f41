"""Secure sums in the simulator: real masks, and the model of the plain run, bit for bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from eris.core.combine import VALUE_BITS, FixedPoint
from eris.core.compress import Encoding
from eris.core.errors import InvalidSetting
from eris.core.vectors import Vector
from eris.federation import Federation
from eris.methods.eris import ERIS
from eris.protocol.messages import Contribution, Reveal, RevealRequest
from eris.protocol.secure.simulated import Opener
from eris.protocol.secure.wire import CLOSE
from eris.runtimes.cohort import Cohort
from eris.runtimes.faults import Fault, FaultPlan
from eris.runtimes.station import Place, Stations
from eris.session import Fit
from eris.testing import assert_same_bits, initial_model
from support.crowd import Crowd

N, CLIENTS, ROUNDS = 300, 9, 4
START = initial_model(N)
CROWD = Crowd(CLIENTS, N, momentum=0.5)
SAMPLES = [CROWD.samples(client) for client in range(CLIENTS)]


def federation(settings: dict[str, Any] | None = None, **method: Any) -> Federation:
    return Federation(
        CROWD, START, ERIS(**({"aggregators": 5} | method)), samples=SAMPLES, seed=2,
        **({"min_included": 4} | (settings or {})),
    )  # fmt: skip


def fitted(
    settings: dict[str, Any] | None = None, faults: FaultPlan | None = None, record: bool = False,
    **method: Any,
) -> Fit:  # fmt: skip
    made = federation(settings, **method)
    return made.fit(ROUNDS, progress=False, faults=faults, record=record)


@pytest.mark.parametrize("secure", ["2 of 3", "3 of 4", "2 of 2", "4 of 4"])
def test_the_model_is_that_of_the_plain_run_whoever_opens(secure: str) -> None:
    least = {"min_included": 6}
    assert_same_bits(fitted(least, secure=secure).model, fitted(least).model)


@pytest.mark.parametrize(
    "method",
    [{"kept_fraction": 0.3}, {"kept_fraction": 0.3, "basis": "rotated"}, {"rotate": 2}],
    ids=["shifted", "rotated", "rotating shards"],
)
def test_kept_sets_bases_and_turns_change_nothing_about_that(method: dict[str, Any]) -> None:
    assert_same_bits(fitted(secure="2 of 3", **method).model, fitted(**method).model)


def test_a_segment_of_which_nothing_is_kept_goes_the_same_way() -> None:
    small = {"segment_size": 20}
    secure, plain = (
        fitted(small, kept_fraction=0.05, basis="coordinates", secure=secure, record=True)
        for secure in ("2 of 3", "none")
    )
    assert_same_bits(secure.model, plain.model)
    assert secure.transcript is not None
    sent = [r.message for r in secure.transcript.records if isinstance(r.message, Contribution)]
    assert min(one.payload.encoded.count for one in sent) == 0


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "fednova"])
def test_every_rule_that_takes_a_mean_gets_the_mean_it_got(rule: str) -> None:
    def model(secure: str) -> Vector:
        made = Federation(CROWD, START, ERIS(secure=secure), samples=SAMPLES, rule=rule,
                          min_included=4)  # fmt: skip
        return made.fit(ROUNDS, progress=False).model

    assert_same_bits(model("2 of 3"), model("none"))


@pytest.mark.parametrize("size", [6, 8])
def test_words_of_fewer_bytes_have_the_bits_of_a_plain_run_on_their_grid(size: int) -> None:
    """f = 8·size − 1 − bits(range) − bits(samples); a plain run of a larger range has it too."""
    secure = fitted({"precision": FixedPoint(16.0)}, secure="2 of 3", ring_bytes=size).model
    places = min(35, 8 * size - 1 - 4 - 24)
    plain = fitted({"precision": FixedPoint(2.0 ** (VALUE_BITS - places))}).model
    assert_same_bits(secure, plain)


@pytest.mark.parametrize(
    "rates", [{"straggle": 0.3}, {"dropout": 0.3}, {"churn": 0.1, "seed": 4}, {"link": 0.02}]
)
def test_members_that_are_away_change_nothing_about_that(rates: dict[str, Any]) -> None:
    """Clients are late, owners do not aggregate, one helper of three is away."""
    plain, secure = (fitted(faults=FaultPlan(**rates), secure=s) for s in ("none", "2 of 3"))
    assert min(one.included or 0 for one in plain.history) < 1
    assert_same_bits(secure.model, plain.model)


@pytest.mark.parametrize("stations", [2, 3])
def test_stations_and_a_state_that_goes_on_elsewhere_have_the_same_bits(stations: int) -> None:
    agreement = federation(secure="2 of 3").agreement
    assert agreement is not None

    def at(count: int) -> Stations:
        return Stations([
            Cohort(agreement, START, Crowd(CLIENTS, N), place=Place(number, count))
            for number in range(count)
        ])  # fmt: skip

    one, some, later = at(1), at(stations), at(1)
    for round in (1, 2):
        one.run_round(round)
        some.run_round(round)
    later.restore(2, some.state())
    one.run_round(3)
    assert later.run_round(3).included == 1.0
    assert_same_bits(later.models()[0], one.models()[0])


def test_clients_that_are_drawn_anew_every_round_have_helpers_too() -> None:
    models = [
        Federation(CROWD, START, ERIS(secure=secure, aggregators=3), samples=SAMPLES, sampled=6,
                   min_included=4).fit(ROUNDS, progress=False).model
        for secure in ("2 of 3", "none")
    ]  # fmt: skip
    assert_same_bits(models[0], models[1])


def test_what_an_owner_gets_is_uniform_and_says_no_weight() -> None:
    """Law 10 in the small: byte planes of words and heads of constant updates, and of answers."""
    fit = fitted(secure="2 of 3", record=True)
    planes: Counter[int] = Counter()
    assert fit.transcript is not None
    kinds: Counter[str] = Counter()
    for record in fit.transcript.records:
        message = record.message
        kinds[type(message).__name__] += 1
        if isinstance(message, Contribution) and record.receivers != (record.sender,):
            assert message.payload.encoded.encoding is Encoding.RING
            assert (message.samples, message.steps) == (0, 0)
            planes.update(message.payload.encoded.data[16 : 48 + 8 * message.payload.encoded.count])
        elif isinstance(message, Reveal) and message.data[:1] == b"\x02":
            planes.update(message.data[34:])
    total = planes.total()
    assert total > 100_000
    found = sum((planes[byte] - total / 256) ** 2 for byte in range(256)) * 256 / total
    assert chi2.sf(found, 255) > 1e-6
    assert {"Contribution", "RevealRequest", "Reveal", "Result"} <= kinds.keys()


def test_an_owner_with_helpers_enough_reads_what_was_sent_and_with_fewer_nothing() -> None:
    made, plain = federation(secure="2 of 3"), federation()
    seen, clear = (one.fit(1, progress=False, record=True).transcript for one in (made, plain))
    assert seen is not None
    assert clear is not None
    assert made.agreement is not None
    assert plain.agreement is not None
    sent = {
        (one.header.sender, one.header.key): plain.agreement.coding.read(
            one, plain.agreement.segments(1)[one.header.key]
        )
        for one in (record.message for record in clear.records)
        if isinstance(one, Contribution)
    }
    opener = Opener(made.agreement)
    opened = 0
    for record in seen.records:
        message = record.message
        if not isinstance(message, Contribution) or record.receivers == (record.sender,):
            continue
        header = message.header
        owner = made.agreement.view.owners[header.shard]
        everyone = opener.openers(header.shard)
        helper = next(iter(everyone - {owner}))
        assert opener.read(message, {owner, helper}) is None, "one helper of three is not enough"
        assert opener.read(message, everyone - {owner}) is None, "helpers alone hold no words"
        read = opener.read(message, everyone)
        assert read is not None
        values, samples, steps = read
        before = sent[header.sender, header.key]
        assert np.abs(values - before).max(initial=0) <= 2**-33
        assert (samples, steps) == (SAMPLES[header.sender], 1)
        opened += 1
    assert opened == 40


def test_questions_are_answered_once_a_set() -> None:
    """In step nobody lies; the owner of a recorded run asks again about another set."""
    made = federation(secure="2 of 3")
    assert made.agreement is not None
    cohort = Cohort(made.agreement, START, CROWD, record=True)
    for phase in range(cohort.phases - 2):
        cohort.act(1, phase, [])
    asked = next(
        r.message for r in cohort._post._records
        if isinstance(r.message, RevealRequest) and r.message.included
    )  # fmt: skip
    helper = next(r.receivers[0] for r in cohort._post._records if r.message == asked)
    again = cohort._answering[helper].answer(asked)
    assert isinstance(again[0].message, Reveal)
    assert again[0].message.data[:1] == b"\x02"


@pytest.mark.parametrize(
    ("method", "settings", "match"),
    [
        ({"secure": "2 of 3"}, {"min_included": 3}, "min_included is 3; expected at least 4"),
        ({"secure": "2 of 3", "colluders": 0}, {}, "colluders is 0; expected at least 1"),
        ({"secure": "2 of 4"}, {}, "secure_sums is '2 of 4'"),
        ({"secure": "2 of 3", "ring_bytes": 7}, {}, "ring_bytes is 7; expected 4, 5, 6 or 8"),
        ({"secure": "2 of 3", "ring_bytes": 4}, {}, "more ring_bytes, a smaller range"),
        ({"secure": "2 of 3", "kept_fraction": 0.3, "masks": "independent"}, {}, "one mask for"),
    ],
)
def test_what_cannot_be_is_refused(
    method: dict[str, Any], settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidSetting, match=match):
        federation(settings, **method)


@pytest.mark.parametrize("rule", ["coordinate-median", "trimmed-mean"])
def test_a_rule_that_needs_single_contributions_is_refused(rule: str) -> None:
    with pytest.raises(InvalidSetting, match="no single contributions: fedavg"):
        Federation(CROWD, START, ERIS(secure="2 of 3"), rule=rule)


def test_too_few_members_are_refused() -> None:
    few = Crowd(3, N)
    with pytest.raises(InvalidSetting, match="3 members, 3 of them clients"):
        Federation(few, START, ERIS(secure="2 of 3"))


def test_messages_that_are_doubled_and_late_change_nothing() -> None:
    shuffled = FaultPlan(seed=1, delay=0.5, duplicate=0.2, longest_delay=1.5)
    secure = fitted(faults=shuffled, secure="2 of 3")
    assert shuffled.struck[Fault.DELAY] > 100
    assert shuffled.struck[Fault.DUPLICATE] > 100
    assert [record.included for record in secure.history] == [1.0] * ROUNDS
    assert_same_bits(secure.model, fitted().model)


def test_where_messages_are_lost_one_set_a_segment_and_round_is_opened() -> None:
    lossy = FaultPlan(seed=3, drop=0.15)
    fit = fitted(faults=lossy, secure="2 of 3", record=True)
    assert lossy.struck[Fault.DROP] > 100
    assert fit.transcript is not None
    closed: dict[tuple[int, tuple[int, int]], set[bytes]] = {}
    for record in fit.transcript.records:
        message = record.message
        if isinstance(message, Reveal) and message.data[:1] == CLOSE:
            place = message.header.round, message.header.key
            closed.setdefault(place, set()).add(message.data[1:33])
    assert len(closed) == ROUNDS * 5
    assert all(len(statements) == 1 for statements in closed.values())
    assert 0 < sum(record.included or 0 for record in fit.history) < ROUNDS


@pytest.mark.parametrize("fault", ["crash", "churn"])
def test_where_members_start_again_nobody_could_tell_of_new_keys(fault: str) -> None:
    faults: Any = {"drop": 0.1, fault: 0.1}
    with pytest.raises(InvalidSetting, match=f"{fault} is 0.1; expected 0 with sealed sums"):
        fitted(faults=FaultPlan(**faults), secure="2 of 3")
