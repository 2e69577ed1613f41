"""The papers' communication tables, line by line, and what must hold beyond them.

A printed figure is matched to half of its last printed digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.theory.distribution_time import (
    Links,
    RoundCost,
    ako_round,
    ako_seconds_as_printed,
    central_round,
    eris_link_loads,
    eris_physical_limit,
    eris_round,
    fedavg_round,
    priprune_round,
    qdpsgd_round,
    shatter_round,
    soteriafl_round,
)

UNITS = {"GB": 1e9, "MB": 1e6, "KB": 1e3, "s": 1.0, "x": 1.0}


def assert_prints_as(value: float, printed: str) -> None:
    number, unit = printed.split()
    decimals = len(number.partition(".")[2])
    half_digit = 0.5 * 10**-decimals
    # Some figures lie exactly between two roundings (17.325 s, 24.255 MB); the papers print either.
    assert abs(value / UNITS[unit] - float(number)) <= half_digit * (1 + 1e-9), (value, printed)


Method = Callable[[float, int, Links], RoundCost]
MBPS_20 = Links.uniform(20e6)


def eris(kept_fraction: float, *, compressed_download: bool = False) -> Method:
    def cost(model: float, clients: int, links: Links) -> RoundCost:
        sent = kept_fraction * model
        download = sent if compressed_download else model
        return eris_round(sent, download, clients, clients, links)

    return cost


def priprune(kept_fraction: float) -> Method:
    return lambda model, clients, links: priprune_round(
        model, clients, links, kept_fraction=kept_fraction
    )


def shatter(neighbours: int) -> Method:
    return lambda model, clients, links: shatter_round(model, clients, neighbours, links)


# Newer ERIS paper (000_55e9307102d5b8b3), appendix F.2.2, Tables 3 and 4, at 20 MB/s:
# (method, upload, down., tot., time). K = A as in section 7 of the project's specification.
GPT_NEO = (5.2e9, 10)
GPT_NEO_ROWS: list[tuple[Method, str]] = [
    (fedavg_round, "5.2 GB | 5.2 GB | 10.4 GB | 5200.0 s"),
    (shatter(3), "5.2 GB | 5.2 GB | 36.4 GB | 780.0 s"),
    (ako_round, "9.36 GB | 9.36 GB | 18.72 GB | 936.0 s"),
    (qdpsgd_round, "3.51 GB | 3.51 GB | 37.44 GB | 351.0 s"),
    (priprune(0.9), "4.68 GB | 5.2 GB | 9.88 GB | 4940.0 s"),
    (priprune(0.8), "4.16 GB | 5.2 GB | 9.36 GB | 4680.0 s"),
    (priprune(0.7), "3.64 GB | 5.2 GB | 8.84 GB | 4420.0 s"),
    (soteriafl_round, "260.0 MB | 5.2 GB | 5.46 GB | 2730.0 s"),
    (eris(1.0), "4.68 GB | 4.68 GB | 9.36 GB | 468.0 s"),
    (eris(0.05), "234.0 MB | 4.68 GB | 4.91 GB | 245.7 s"),
    (eris(0.01), "46.8 MB | 4.68 GB | 4.73 GB | 236.34 s"),
]
DISTILBERT = (268e6, 25)
DISTILBERT_ROWS: list[tuple[Method, str]] = [
    (fedavg_round, "268.0 MB | 268.0 MB | 536.0 MB | 670.0 s"),
    (shatter(4), "268.0 MB | 268.0 MB | 2.41 GB | 53.6 s"),
    (ako_round, "1.29 GB | 1.29 GB | 2.57 GB | 128.64 s"),
    (qdpsgd_round, "482.4 MB | 482.4 MB | 5.15 GB | 48.24 s"),
    (priprune(0.9), "241.2 MB | 268.0 MB | 509.2 MB | 636.5 s"),
    (priprune(0.8), "214.4 MB | 268.0 MB | 482.4 MB | 603.0 s"),
    (priprune(0.7), "187.6 MB | 268.0 MB | 455.6 MB | 569.5 s"),
    (soteriafl_round, "13.4 MB | 268.0 MB | 281.4 MB | 351.75 s"),
    (eris(1.0), "257.28 MB | 257.28 MB | 514.56 MB | 25.73 s"),
    (eris(0.05), "12.86 MB | 257.28 MB | 270.14 MB | 13.51 s"),
    (eris(0.00012), "30.87 KB | 257.28 MB | 257.31 MB | 12.87 s"),
]
RESNET_9 = (6.6e6, 50)
RESNET_9_ROWS: list[tuple[Method, str]] = [
    (fedavg_round, "6.6 MB | 6.6 MB | 13.2 MB | 33.0 s"),
    (shatter(4), "6.6 MB | 6.6 MB | 59.4 MB | 1.32 s"),
    (ako_round, "64.68 MB | 64.68 MB | 129.36 MB | 6.47 s"),
    (qdpsgd_round, "24.25 MB | 24.25 MB | 258.72 MB | 2.43 s"),
    (priprune(0.99), "6.53 MB | 6.6 MB | 13.13 MB | 32.84 s"),
    (priprune(0.95), "6.27 MB | 6.6 MB | 12.87 MB | 32.17 s"),
    (priprune(0.9), "5.94 MB | 6.6 MB | 12.54 MB | 31.35 s"),
    (soteriafl_round, "330.0 KB | 6.6 MB | 6.93 MB | 17.32 s"),
    (eris(1.0), "6.47 MB | 6.47 MB | 12.94 MB | 0.65 s"),
    (eris(0.05), "323.4 KB | 6.47 MB | 6.79 MB | 0.34 s"),
    (eris(0.006), "38.81 KB | 6.47 MB | 6.51 MB | 0.33 s"),
]
LENET_5 = (248e3, 50)
LENET_5_ROWS: list[tuple[Method, str]] = [
    (fedavg_round, "248.0 KB | 248.0 KB | 496.0 KB | 1.24 s"),
    (shatter(4), "248.0 KB | 248.0 KB | 2.23 MB | 0.05 s"),
    (ako_round, "2.43 MB | 2.43 MB | 4.86 MB | 0.24 s"),
    (qdpsgd_round, "911.4 KB | 911.4 KB | 9.72 MB | 0.09 s"),
    (priprune(0.99), "245.52 KB | 248.0 KB | 493.52 KB | 1.23 s"),
    (priprune(0.95), "235.6 KB | 248.0 KB | 483.6 KB | 1.21 s"),
    (priprune(0.9), "223.2 KB | 248.0 KB | 471.2 KB | 1.18 s"),
    (soteriafl_round, "12.4 KB | 248.0 KB | 260.4 KB | 0.65 s"),
    (eris(1.0), "243.04 KB | 243.04 KB | 486.08 KB | 0.02 s"),
    (eris(0.05), "12.15 KB | 243.04 KB | 255.19 KB | 0.01 s"),
    (eris(0.033), "8.02 KB | 243.04 KB | 251.06 KB | 0.01 s"),
]
TABLES = [
    pytest.param(*model, method, row, id=f"{name}: {row}")
    for name, model, rows in (
        ("GPT-Neo", GPT_NEO, GPT_NEO_ROWS),
        ("DistilBERT", DISTILBERT, DISTILBERT_ROWS),
        ("ResNet-9", RESNET_9, RESNET_9_ROWS),
        ("LeNet-5", LENET_5, LENET_5_ROWS),
    )
    for method, row in rows
]


@pytest.mark.parametrize(("model_bytes", "clients", "method", "row"), TABLES)
def test_newer_papers_tables(model_bytes: float, clients: int, method: Method, row: str) -> None:
    cost = method(model_bytes, clients, MBPS_20)
    upload, download, total, time = (cell.strip() for cell in row.split("|"))
    assert_prints_as(cost.upload, upload)
    assert_prints_as(cost.download, download)
    assert_prints_as(cost.total, total)
    assert_prints_as(cost.seconds, time)


@pytest.mark.parametrize(
    ("model", "kept_fraction", "upload", "time"),
    [  # Older ERIS paper (001_57e6e0c8e8bd78bb), Table 4: both directions compressed.
        (GPT_NEO, 0.01, "46.8 MB", "4.68 s"),
        (DISTILBERT, 0.00012, "30.87 KB", "0.003 s"),
        (RESNET_9, 0.006, "0.04 MB", "0.0039 s"),
        (LENET_5, 0.033, "8.02 KB", "0.0008 s"),
    ],
)
def test_older_papers_table_with_compressed_downloads(
    model: tuple[float, int], kept_fraction: float, upload: str, time: str
) -> None:
    cost = eris(kept_fraction, compressed_download=True)(*model, MBPS_20)
    assert_prints_as(cost.upload, upload)
    assert_prints_as(cost.seconds, time)


@pytest.mark.parametrize(
    ("model", "time"),
    [  # The same table's SoteriaFL row: the server's results compressed to 5 % too.
        (GPT_NEO, "260 s"),
        (DISTILBERT, "33.5 s"),
        (RESNET_9, "1.65 s"),
        (LENET_5, "0.06 s"),
    ],
)
def test_older_papers_central_round_with_compressed_downloads(
    model: tuple[float, int], time: str
) -> None:
    model_bytes, clients = model
    sent = 0.05 * model_bytes
    assert_prints_as(central_round(sent, sent, clients, MBPS_20).seconds, time)


def test_320_megabit_model_at_100_megabit_per_second() -> None:
    """Spec 1.6, last paragraph; newer paper, Figure 8 (its text says 105× and 55×)."""
    model, clients, links = 320e6 / 8, 50, Links.uniform(100e6 / 8)
    fedavg = fedavg_round(model, clients, links).seconds
    soteriafl = soteriafl_round(model, clients, links).seconds
    compressed = eris(0.05)(model, clients, links).seconds
    both = eris(0.05, compressed_download=True)(model, clients, links).seconds
    assert_prints_as(fedavg, "320 s")
    assert_prints_as(eris(1.0)(model, clients, links).seconds, "6.27 s")
    assert_prints_as(compressed, "3.29 s")
    assert_prints_as(fedavg / compressed, "97 x")
    assert_prints_as(soteriafl / compressed, "51 x")
    assert_prints_as(both, "0.3136 s")
    assert_prints_as(fedavg / both, "1020 x")  # the older paper's Figure 7 text has 1020×


def test_two_aggregators_at_320_megabit() -> None:
    """Newer paper, text to Figure 8: 4× over FedAvg and 2× over SoteriaFL in the worst case."""
    model, clients, links = 320e6 / 8, 50, Links.uniform(100e6 / 8)
    seconds = eris_round(0.05 * model, model, clients, 2, links).seconds
    assert_prints_as(fedavg_round(model, clients, links).seconds / seconds, "4 x")
    assert_prints_as(soteriafl_round(model, clients, links).seconds / seconds, "2 x")


def test_ako_by_equation_54_is_not_the_tables() -> None:
    assert ako_seconds_as_printed(5.2e9, 10, MBPS_20) == pytest.approx(260.0)
    links = Links(up=[4.0, 2.0], down=[1.0, 8.0])
    assert ako_seconds_as_printed(16.0, 2, links) == 16.0


@pytest.mark.parametrize("clients", [2, 8, 50])
def test_physical_limit_at_as_many_aggregators_as_clients_is_all_reduce(clients: int) -> None:
    limit = eris_physical_limit(6.6e6, 6.6e6, clients, clients, MBPS_20)
    assert limit == pytest.approx(2 * (clients - 1) / clients * 6.6e6 / 20e6)
    two_phases = eris_round(6.6e6, 6.6e6, clients, clients, MBPS_20)
    assert limit == pytest.approx(two_phases.seconds)


def test_physical_limit_of_two_aggregators_for_eight_clients() -> None:
    """Spec 1.1, "Segments": 0.57 of the papers' sum of two phases."""
    limit = eris_physical_limit(40e6, 40e6, 8, 2, MBPS_20)
    assert_prints_as(limit / eris_round(40e6, 40e6, 8, 2, MBPS_20).seconds, "0.57 x")


def test_one_aggregator_is_fedavg_without_its_own_update() -> None:
    """A = 1: the server is one of the clients, so K − 1 updates travel instead of K."""
    cost = eris_round(1e6, 1e6, 10, 1, MBPS_20)
    assert cost.seconds == pytest.approx(0.9 * fedavg_round(1e6, 10, MBPS_20).seconds)
    assert cost.upload == 1e6, "the busiest client keeps nothing"


def test_equation_53_as_printed_charges_every_client_the_whole_update() -> None:
    printed = eris_round(5.2e9, 5.2e9, 10, 10, MBPS_20, own_share_stays=False)
    assert printed.seconds == pytest.approx(2 * 260.0)
    assert printed.upload == 5.2e9
    for aggregators in range(1, 10):  # with a client that aggregates nothing they are one
        ours = eris_round(5.2e9, 1e9, 10, aggregators, MBPS_20)
        theirs = eris_round(5.2e9, 1e9, 10, aggregators, MBPS_20, own_share_stays=False)
        assert ours == theirs


def test_a_slow_client_sets_the_pace_of_its_own_direction() -> None:
    """Hand-computed with b′ = 4, d = 8, K = 4, A = 2; the first two clients aggregate."""
    links = Links(up=[8.0, 8.0, 8.0, 0.5], down=[8.0, 1.0, 8.0, 8.0])
    cost = eris_round(4.0, 8.0, 4, 2, links)
    # Collect: aggregator 1 takes 3·4/2 bytes at 1 B/s = 6 s; client 3 sends 4 at 0.5 = 8 s.
    # Publish: an aggregator sends 3·8/2 at 8 = 1.5 s; client 1 fetches half of 8 at 1 = 4 s.
    assert cost.seconds == pytest.approx(8.0 + 4.0)
    # Overlapped: client 3 sends 8 s; aggregator 1 takes 6 + 4 bytes at 1 B/s.
    assert eris_physical_limit(4.0, 8.0, 4, 2, links) == pytest.approx(10.0)


def test_slow_ends_of_the_other_methods() -> None:
    links = Links(up=[10.0, 2.0], down=[5.0, 4.0], server_up=100.0, server_down=1.0)
    assert fedavg_round(20.0, 2, links).seconds == pytest.approx(2 * 20 / 1 + 20 / 4)
    assert shatter_round(20.0, 2, 1, links).seconds == pytest.approx(20 / 2)
    assert shatter_round(20.0, 2, 3, links).seconds == pytest.approx(3 * 20 / 4)
    assert shatter_round(20.0, 2, 3, Links(up=[1.0, 1.5], down=9.0)).seconds == 24.0
    assert ako_round(20.0, 2, links, partitions=4).seconds == pytest.approx(5 / 2 + 5 / 4)


def test_link_loads_balance() -> None:
    """Whatever is sent is received, with equal shards and with unequal ones."""
    for shares in (None, [0.5, 0.3, 0.2]):
        loads = eris_link_loads(7.0, 3.0, 5, 3, shares=shares)
        sent, fetched = (math.fsum(direction) for direction in zip(*loads, strict=True))
        assert sent == pytest.approx(fetched)
        # Each of 5 clients sends its update but for its own shard, and so for the results.
        assert sent == pytest.approx((5 - 1) * (7.0 + 3.0))


def test_shares_in_proportion_to_bandwidth_shorten_the_round() -> None:
    links = Links(up=[30.0, 10.0, 10.0], down=[30.0, 10.0, 10.0])
    equal = eris_physical_limit(60.0, 60.0, 3, 3, links)
    weighted = eris_physical_limit(60.0, 60.0, 3, 3, links, shares=[0.6, 0.2, 0.2])
    assert weighted < equal


rates = st.floats(0.1, 100.0)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_overlapping_never_takes_longer_than_two_phases(data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 9))
    aggregators = data.draw(st.integers(1, clients))
    each = st.lists(rates, min_size=clients, max_size=clients)
    links = Links(up=data.draw(each), down=data.draw(each))
    up, down = data.draw(st.floats(1.0, 100.0)), data.draw(st.floats(1.0, 100.0))
    limit = eris_physical_limit(up, down, clients, aggregators, links)
    two_phases = eris_round(up, down, clients, aggregators, links).seconds
    printed = eris_round(up, down, clients, aggregators, links, own_share_stays=False).seconds
    assert limit <= two_phases * (1 + 1e-12)
    assert two_phases <= printed * (1 + 1e-12)


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match=r"up is 0\.0"):
        Links.uniform(0.0)
    with pytest.raises(InvalidSetting, match=r"down is \[1\.0, nan\]"):
        Links(up=1.0, down=[1.0, math.nan])
    with pytest.raises(InvalidSetting, match="one for each of 3 clients"):
        fedavg_round(1.0, 3, Links(up=[1.0, 1.0], down=1.0, server_up=1.0))
    with pytest.raises(InvalidSetting, match="server_down is None"):
        fedavg_round(1.0, 2, Links(up=1.0, down=[1.0, 2.0]))
    with pytest.raises(InvalidSetting, match="clients is 0"):
        ako_round(1.0, 0, MBPS_20)
    with pytest.raises(InvalidSetting, match="model_bytes is -1"):
        qdpsgd_round(-1.0, 3, MBPS_20)
    with pytest.raises(InvalidSetting, match="aggregators is 4"):
        eris_round(1.0, 1.0, 3, 4, MBPS_20)
    with pytest.raises(InvalidSetting, match="add up to 1"):
        eris_physical_limit(1.0, 1.0, 3, 2, MBPS_20, shares=[0.5, 0.6])
    with pytest.raises(InvalidSetting, match="kept_fraction is 0"):
        soteriafl_round(1.0, 3, MBPS_20, kept_fraction=0.0)
    with pytest.raises(InvalidSetting, match="neighbours is 0"):
        shatter_round(1.0, 3, 0, MBPS_20)
