"""The leakage bounds, and the exposure through published results that they leave out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.theory.leakage import (
    MaskMode,
    aggregators_against_collusion,
    coalition_share,
    gaussian_capacity,
    gaussian_capacity_from_snr,
    kept_fraction_against_collusion,
    leakage_bound,
    published_exposure,
    weighted_share,
)


def bound(share: float, kept_fraction: float = 0.1) -> float:
    return leakage_bound(
        coordinates=10_000, rounds=20, kept_fraction=kept_fraction, share=share, capacity=0.05
    ).nats


@pytest.mark.parametrize("snr", [0.0, 1e-6, 0.1, 1.0, 30.0])
def test_both_forms_of_the_gaussian_capacity_agree(snr: float) -> None:
    conditional = 0.37
    variance = conditional * (1 + snr)
    assert gaussian_capacity(variance, conditional) == pytest.approx(
        gaussian_capacity_from_snr(snr), rel=1e-8, abs=1e-15
    )


def test_gaussian_capacity_is_the_mutual_information_of_a_gaussian_channel() -> None:
    """I(D; X) for X = D + noise, from the correlation of samples: −½·ln(1 − ρ²)."""
    rng = np.random.default_rng(5)
    data = rng.normal(0, 1.5, 400_000)
    seen = data + rng.normal(0, 1.0, data.size)
    correlation = np.corrcoef(data, seen)[0, 1]
    measured = -0.5 * math.log(1 - correlation**2)
    assert gaussian_capacity(1.5**2 + 1, 1.0) == pytest.approx(measured, rel=0.01)


def test_bound_counts_what_the_observer_sees() -> None:
    """The expected number of coordinates seen, drawn, times C_max: n·(p/A)·C_max a round."""
    coordinates, kept, aggregators, capacity = 200_000, 0.2, 8, 0.03
    rng = np.random.default_rng(11)
    in_shard = rng.permutation(coordinates) % aggregators == 3
    seen = np.count_nonzero(in_shard & (rng.random(coordinates) < kept))
    result = leakage_bound(
        coordinates=coordinates,
        rounds=7,
        kept_fraction=kept,
        share=coalition_share(aggregators),
        capacity=capacity,
    )
    assert result.nats_per_round == pytest.approx(seen * capacity, rel=0.03)
    assert result.seen_share == pytest.approx(seen / coordinates, rel=0.03)
    assert result.nats == pytest.approx(7 * result.nats_per_round)


def test_collusion_is_linear_until_the_coalition_has_everything() -> None:
    alone = bound(coalition_share(10))
    for colluders in range(1, 11):
        assert bound(coalition_share(10, colluders)) == pytest.approx(colluders * alone)
    everything = bound(1.0)
    for colluders in (10, 11, 500):
        assert bound(coalition_share(10, colluders)) == everything


@pytest.mark.parametrize("colluders", [1, 2, 7])
def test_more_aggregators_or_fewer_kept_hold_the_level_against_colluders(colluders: int) -> None:
    wanted = bound(coalition_share(10))
    more = aggregators_against_collusion(10, colluders)
    assert bound(coalition_share(more, colluders)) == pytest.approx(wanted)
    fewer = kept_fraction_against_collusion(0.1, colluders)
    assert bound(coalition_share(10, colluders), kept_fraction=fewer) == pytest.approx(wanted)


def test_weighted_shards_are_governed_by_the_largest_and_add_up_in_a_coalition() -> None:
    sizes = [500, 300, 150, 50]
    assert weighted_share(sizes) == 0.5 > coalition_share(len(sizes))
    assert weighted_share(sizes, [1, 3]) == pytest.approx(0.35)
    assert weighted_share(sizes, [3, 3]) == pytest.approx(0.05), "a shard counts once"
    assert weighted_share(sizes, range(4)) == 1.0
    assert weighted_share(sizes, []) == 0.0


@pytest.mark.parametrize("aggregators", [1, 2, 5])
def test_equal_weighted_shards_are_the_unweighted_case(aggregators: int) -> None:
    sizes = [40] * aggregators
    assert weighted_share(sizes) == coalition_share(aggregators)
    for colluders in range(1, aggregators + 1):
        expected = coalition_share(aggregators, colluders)
        assert weighted_share(sizes, range(colluders)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kept_fraction", "percent"),
    [(0.033, 19), (0.006, 74)],  # spec 1.3, K = 50: MNIST's and CIFAR-10's compression
)
def test_single_contributors_at_the_papers_settings(kept_fraction: float, percent: int) -> None:
    exposure = published_exposure(
        coordinates=1, clients=50, kept_fraction=kept_fraction, masks="independent"
    )
    assert round(100 * exposure.share_of_kept) == percent


@pytest.mark.parametrize(("clients", "kept"), [(3, 0.5), (8, 0.2), (50, 0.033), (50, 0.006)])
def test_single_contributor_exposure_matches_drawn_masks(clients: int, kept: float) -> None:
    coordinates, rounds = 20_000, 15
    rng = np.random.default_rng(clients)
    lone, kept_by_first, exposed_of_first = 0, 0, 0
    for _ in range(rounds):
        masks = rng.random((clients, coordinates)) < kept
        single = masks.sum(axis=0) == 1
        lone += int(np.count_nonzero(single))
        kept_by_first += int(np.count_nonzero(masks[0]))
        exposed_of_first += int(np.count_nonzero(masks[0] & single))

    exposure = published_exposure(
        coordinates=coordinates, clients=clients, kept_fraction=kept, masks="independent"
    )
    draws = coordinates * rounds
    # Five standard deviations of each count.
    assert abs(lone - rounds * exposure.coordinates) < 5 * math.sqrt(lone)
    assert abs(exposed_of_first - draws * exposure.share_of_update) < 5 * math.sqrt(lone / clients)
    spread = 0.5 / math.sqrt(kept_by_first)
    assert abs(exposed_of_first / kept_by_first - exposure.share_of_kept) < 5 * spread


@pytest.mark.parametrize("min_included", [2, 3, 50])
def test_shared_masks_publish_nobody_alone(min_included: int) -> None:
    exposure = published_exposure(
        coordinates=1000,
        clients=50,
        kept_fraction=0.01,
        masks="shared",
        min_included=min_included,
    )
    assert (exposure.coordinates, exposure.share_of_kept, exposure.share_of_update) == (0, 0, 0)


def test_shared_masks_without_a_minimum_may_publish_one_client_whole() -> None:
    exposure = published_exposure(
        coordinates=1000, clients=50, kept_fraction=0.1, masks="shared", min_included=1
    )
    assert exposure.share_of_kept == 1.0
    assert exposure.coordinates == pytest.approx(100)


@pytest.mark.parametrize("masks", ["independent", "shared"])
def test_too_few_clients_publish_nothing(masks: MaskMode) -> None:
    exposure = published_exposure(
        coordinates=1000, clients=2, kept_fraction=0.1, masks=masks, min_included=3
    )
    assert exposure.coordinates == 0.0


def test_an_uncompressed_round_exposes_nobody() -> None:
    exposure = published_exposure(
        coordinates=1000, clients=3, kept_fraction=1.0, masks="independent"
    )
    assert exposure.coordinates == 0.0


def test_exposure_does_not_shrink_with_the_number_of_aggregators() -> None:
    """Where it hurts: at 0.6 % kept the published part exceeds what one of 50 aggregators sees."""
    exposure = published_exposure(
        coordinates=1000, clients=50, kept_fraction=0.006, masks="independent"
    )
    seen = leakage_bound(
        coordinates=1000, rounds=1, kept_fraction=0.006, share=coalition_share(50), capacity=1.0
    ).seen_share
    assert exposure.share_of_update > 37 * seen


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="conditional_variance is 0"):
        gaussian_capacity(1.0, 0.0)
    with pytest.raises(InvalidSetting, match=r"variance is 0\.5"):
        gaussian_capacity(0.5, 1.0)
    with pytest.raises(InvalidSetting, match="snr is nan"):
        gaussian_capacity_from_snr(math.nan)
    with pytest.raises(InvalidSetting, match="aggregators is 0"):
        coalition_share(0)
    with pytest.raises(InvalidSetting, match="colluders is 0"):
        kept_fraction_against_collusion(0.5, 0)
    with pytest.raises(InvalidSetting, match="shard_sizes is"):
        weighted_share([])
    with pytest.raises(InvalidSetting, match="from 0 to 1"):
        weighted_share([1, 2], [2])
    with pytest.raises(InvalidSetting, match=r"share is 1\.5"):
        bound(1.5)
    with pytest.raises(InvalidSetting, match="kept_fraction is 0"):
        published_exposure(coordinates=1, clients=1, kept_fraction=0, masks="shared")
    with pytest.raises(InvalidSetting, match="masks is 'common'"):
        published_exposure(
            coordinates=1,
            clients=1,
            kept_fraction=0.5,
            masks="common",  # type: ignore[arg-type]
        )
