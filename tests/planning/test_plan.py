"""Plans against the tables of the theory and of the benchmarks; what binds where there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.shared_noise import NoisePlan
from eris.planning.evidence import noisy_trainings
from eris.planning.plan import FederationPlan, planned
from eris.planning.question import LEAST_KEPT, ImpossiblePlan, Question
from eris.planning.rivals import rivals
from eris.theory.distribution_time import Links, eris_physical_limit
from eris.theory.secure_sums import limit_seconds

RATE = 100e6 / 8


def asked(**given: Any) -> Question:
    usual: dict[str, Any] = {"clients": 8, "parameters": 10**7, "links": Links.uniform(RATE)}
    return Question(**usual | given)


# -- arithmetic -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        # docs/benchmarks.md and docs/secure-sums.md: limits of a round on 100 Mbit/s.
        ({"secure": "none"}, 5.60),
        ({"secure": "none", "aggregators": 2}, 12.8),
        ({"secure": "none", "parameters": 2_500_000}, 1.40),
        ({"secure": "none", "kept": 0.05}, 0.28),
        ({"secure": "2 of 3"}, 10.00),
        ({"secure": "2 of 3", "ring_bytes": 4}, 6.40),
        ({"secure": "3 of 4"}, 5.60 * 1.929),
        # The papers' table: K = A = 10, 5.2 GB, 20 MB/s.
        ({"secure": "none", "clients": 10, "parameters": 1_300_000_000,
          "links": Links.uniform(20e6)}, 468.0),
    ],
)  # fmt: skip
def test_limits_are_those_of_the_tables(given: dict[str, Any], limit: float) -> None:
    assert planned(asked(**given)).limit == pytest.approx(limit, rel=1e-3)


def test_other_methods_have_the_papers_seconds() -> None:
    plan = planned(asked(clients=10, parameters=1_300_000_000, links=Links.uniform(20e6)))
    found = {one.name.split(",")[0]: one.seconds for one in rivals(plan)}
    # ERIS appendix F.2 for 5.2 GB, ten clients, 20 MB/s; Shatter has four neighbours here.
    assert found["FedAvg"] == pytest.approx(5200)
    assert found["SoteriaFL"] == pytest.approx(2730)
    assert found["PriPrune"] == pytest.approx(4940)
    assert found["Ako"] == pytest.approx(936)
    assert found["Q-DPSGD-1"] == pytest.approx(351)
    assert found["Shatter"] == pytest.approx(1040)


def test_a_server_that_nobody_spoke_of_has_the_fastest_link() -> None:
    speeds = [1e6, 2e6, 4e6, 8e6]
    plan = planned(asked(clients=4, links=Links(up=speeds, down=speeds)))
    # 4 × 40 MB over 8 MB/s take less than 40 MB over the slowest client's 1 MB/s.
    assert rivals(plan)[0].seconds == pytest.approx(40 + 40)


def test_the_noise_is_that_of_the_design() -> None:
    # docs/shared-noise.md: K = 50, T = 160, c = 1, min_included 45.
    plan = planned(asked(clients=50, parameters=7850, samples=64, epsilon=2, rounds=160))
    assert plan.min_included == 45
    assert plan.noise == NoisePlan(2, 160, 45, 1)
    assert plan.noise.of_a_client == pytest.approx(3.846, abs=5e-4)
    assert plan.noise.epsilon_of_openers == pytest.approx(18.80, abs=5e-3)
    # All 50 included: 25.8 in a sum with min_included 50; with 45 √(48/43) more.
    measured = next(o for o in noisy_trainings() if (o.std, o.samples) == (25.8, 64))
    assert plan.noise_ratio == pytest.approx(measured.ratio * math.sqrt(48 / 43), rel=0.01)


@settings(max_examples=40)
@given(
    clients=st.integers(5, 30),
    parameters=st.integers(1000, 10**8),
    mbit=st.sampled_from([1, 10, 100, 1000]),
    secure=st.sampled_from(["none", "auto"]),
    kept=st.sampled_from([None, 0.01, 0.3]),
    shards=st.sampled_from(["equal", "weighted"]),
)
def test_a_plan_keeps_to_the_theory(
    clients: int, parameters: int, mbit: int, secure: str, kept: float | None, shards: Any
) -> None:
    links = Links.uniform(mbit * 1e6 / 8)
    given = Question(clients=clients, parameters=parameters, links=links, secure=secure, kept=kept,
                     shards=shards)  # fmt: skip
    plan = planned(given)
    assert plan.aggregators == clients
    assert plan.seconds > plan.limit
    sent, fetched = (math.fsum(load[way] for load in plan.traffic) for way in range(2))
    assert sent == pytest.approx(fetched)
    if plan.secure is None:
        size = 4.0 * plan.coordinates
        limit = eris_physical_limit(size, size, clients, clients, links)
        assert plan.seen == pytest.approx(plan.kept / clients)
    else:
        limit = limit_seconds(plan.coordinates, clients, clients, links, plan.secure.threshold)
        assert plan.seen == 0
    assert plan.limit == pytest.approx(limit)


# -- targets --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(seconds=st.floats(0.5, 20), secure=st.sampled_from(["none", "2 of 3"]))
def test_a_target_of_time_is_met_with_as_much_kept_as_can_be(seconds: float, secure: str) -> None:
    plan = planned(asked(seconds=seconds, secure=secure))
    assert plan.seconds <= seconds
    if plan.kept < 1:
        more = planned(asked(kept=min(1.0, plan.kept * 1.15), secure=secure))
        assert more.seconds > seconds


@settings(max_examples=30)
@given(
    seen=st.floats(0.002, 1),
    colluders=st.integers(1, 7),
    shards=st.sampled_from(["equal", "weighted"]),
)
def test_a_target_on_what_is_seen_is_met(seen: float, colluders: int, shards: Any) -> None:
    speeds = [2e6, 4e6, 8e6, 8e6, 8e6, 9e6, 16e6, 16e6]
    given = asked(secure="none", most_seen=seen, colluders=colluders, shards=shards,
                  links=Links(up=speeds, down=speeds))  # fmt: skip
    try:
        plan = planned(given)
    except ImpossiblePlan:
        assert LEAST_KEPT * colluders / 8 > seen
        return
    assert plan.seen <= seen * (1 + 1e-6)


def test_secure_sums_are_for_the_colluders() -> None:
    chosen = {c: planned(asked(colluders=c, clients=20)).secure for c in range(1, 7)}
    words = {c: None if one is None else str(one.threshold) for c, one in chosen.items()}
    assert words == {1: "2 of 3", 2: "2 of 3", 3: "3 of 4", 4: "4 of 4", 5: "5 of 5", 6: None}
    for colluders, one in chosen.items():
        if one is not None:
            assert one.known >= colluders - 1


def test_four_clients_have_none_and_five_have() -> None:
    assert planned(asked(clients=4)).secure is None
    assert planned(asked(clients=5)).secure is not None


# -- what binds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "binds", "helps"),
    [
        (
            {"clients": 5, "parameters": 61_706, "samples": 16, "epsilon": 1, "rounds": 200},
            "ε = 1 over 200 rounds with 5 clients × 16 samples leaves noise 211 times as long",
            "131 samples a client, or 3 rounds, or ε = 11.2",
        ),
        (
            {"seconds": 0.01},
            "0.01 s a round is below the limit of the slowest link: member 1 moves 0.76 MB up at "
            "100 Mbit/s, which takes 0.06 s with 0.6 % kept in secure sums 2 of 3",
            "no secure sums, where owners read single updates",
        ),
        (
            {"seconds": 0.1, "secure": "none"},
            "0.1 s a round is below what nodes take: member 1 moves 0.42 MB",
            "s a round",
        ),
        (
            {"seconds": 3, "kept": 1.0, "secure": "none"},
            "3 s a round is below the limit of the slowest link",
            "6.14 s a round, or fewer coordinates kept, or 227 Mbit/s there",
        ),
        ({"clients": 4, "samples": 10, "epsilon": 1},
         '"2 of 3" needs 5 members, of whom one may be away, and there are 4', "5 members"),
        ({"clients": 3, "secure": "2 of 3"}, '"2 of 3" needs 4 members, and there are 3',
         "4 members"),
        ({"colluders": 3, "secure": "2 of 3"},
         '"2 of 3" is made against an owner and 1 of its helpers', "secure sums 3 of 4"),
        ({"colluders": 6, "samples": 10, "epsilon": 1}, "no secure sums withstand 6 colluders",
         "5 colluders or fewer"),
        ({"secure": "none", "samples": 10, "epsilon": 1}, "ε = 1 needs secure sums", "2 of 3"),
        (
            {"secure": "none", "most_seen": 0.0005, "colluders": 2},
            "2 of 8 owners together read 0.15 % of an update with 0.6 % kept, more than 0.05 %",
            "24 owners, fewer colluders, or secure sums",
        ),
    ],
)  # fmt: skip
def test_an_impossible_plan_says_what_binds_and_what_would_help(
    given: dict[str, Any], binds: str, helps: str
) -> None:
    with pytest.raises(ImpossiblePlan) as refused:
        planned(asked(**given))
    assert binds in refused.value.constraint
    assert helps in refused.value.remedy


def test_what_would_make_it_possible_does() -> None:
    noisy = asked(clients=5, parameters=61_706, samples=16, epsilon=1, rounds=200)
    enough: list[dict[str, Any]] = [{"samples": 131}, {"rounds": 3}, {"epsilon": 11.2}]
    for change in enough:
        assert planned(replace(noisy, **change)).noise is not None
    slow = asked(seconds=3, kept=1.0, secure="none")
    enough = [{"seconds": 6.14}, {"links": Links.uniform(227e6 / 8)}, {"kept": 0.3}]
    for change in enough:
        assert planned(replace(slow, **change)).seconds <= 6.14
    seen = asked(secure="none", most_seen=0.0005, colluders=2)
    assert planned(replace(seen, clients=24)).seen <= 0.0005 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clients": 2}, "clients is 2; expected 3 to 10,000"),
        ({"parameters": 0}, "parameters is 0"),
        ({"colluders": 8}, "colluders is 8; expected 1 to 7: one member at least is honest"),
        ({"kept": 1.5}, "kept is 1.5; expected a share in (0, 1]"),
        ({"kept": 1e-9}, "a share that keeps one of 10000000 coordinates"),
        ({"epsilon": 1.0}, "samples is None; expected the samples of a client"),
        ({"epsilon": -1.0, "samples": 5}, "epsilon is -1.0; expected a number above 0"),
        ({"aggregators": 9}, "aggregators is 9; expected 1 to 8"),
        ({"secure": "1 of 3"}, "secure_sums is '1 of 3'"),
        ({"names": ("anna",)}, "names is '1 names'; expected 8 or none"),
        ({"links": Links(up=[1e6], down=1e6)}, "up is [1000000.0]; expected one rate, or one for"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        asked(**given)
    assert said in str(refused.value)


def test_training_and_shared_cores_are_added() -> None:
    alone = planned(asked(kept=0.05))
    busy = planned(asked(kept=0.05, training=7.0, members_per_core=4))
    assert busy.seconds == pytest.approx(alone.seconds + 7 + 3 * 0.24)
    assert isinstance(busy, FederationPlan)
