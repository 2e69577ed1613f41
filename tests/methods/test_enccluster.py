"""EncCluster and its relatives as methods: what is refused, and what users are told."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from eris.core.errors import InvalidSetting, PrivacyWarning
from eris.federation import Federation
from eris.methods.registry import create
from eris.protocol.schemes.encrypted_clusters import NOT_HIDDEN
from eris.protocol.settings import Settings
from eris.testing import initial_model
from support.crowd import Crowd
from support.encrypted import CLIENTS, SAMPLES, SMALL, START, N


def federation(name: str = "enccluster", agreed: Any = None, **method: Any) -> Federation:
    usual: dict[str, Any] = {} if name == "detrust" else {"clusters": 8}
    usual |= {} if name == "fedavg-wc" else SMALL
    said = {"samples": SAMPLES} | (agreed or {})
    return Federation(Crowd(CLIENTS, N), START, create(name, **(usual | method)), **said)


@pytest.mark.filterwarnings("ignore:EncCluster does not hide")
@pytest.mark.parametrize(
    ("name", "method", "agreed", "found"),
    [
        ("fedavg-wc", {"clusters": 1}, {}, "clusters is 1; expected 2 to"),
        ("fedavg-wc", {"coding": "sealed"}, {}, "coding is 'sealed'; expected one of packed"),
        ("fedavg-wc", {"clusters_of": "noise"}, {}, "expected one of weights, updates"),
        ("fedavg-wc", {"clusters": 256}, {}, "a segment of 300 weights would be 1324 bytes"),
        ("enccluster", {"clusters": 128}, {}, "would be 4487 bytes, plain 1200"),
        ("enccluster", {"coding": "filter9"}, {}, "coding is 'filter9'"),
        ("enccluster", {"policy": "last"}, {}, "policy is 'last'"),
        ("enccluster", {"fewer": "perhaps"}, {}, "fewer is 'perhaps'"),
        ("enccluster", {"average": "median"}, {}, "average is 'median'"),
        ("enccluster", {"colluders": 8}, {}, "must leave two honest clients"),
        ("enccluster", {"weight_range": 4096.0}, {}, "logarithms go to"),
        ("enccluster", {}, {"samples": None}, "they scale what is sent"),
        ("enccluster", {}, {"sampled": 6}, "average=plain"),
        ("enccluster", {}, {"rule": "coordinate-median"}, "order statistics"),
        ("enccluster", {}, {"segment_size": 299}, "fewer"),
        ("detrust", {}, {"segment_size": 299}, "fewer than 2 weights"),
        ("detrust", {"colluders": -1}, {}, "colluders is -1"),
    ],
)
def test_what_does_not_go_together_is_refused(
    name: str, method: dict[str, Any], agreed: dict[str, Any], found: str
) -> None:
    method = method | ({"fraction_bits": 10} if "weight_range" in method else {})
    with pytest.raises(InvalidSetting, match=found):
        federation(name, agreed, **method)


def test_users_are_told_what_is_not_hidden() -> None:
    with pytest.warns(PrivacyWarning, match="does not hide your model from the server") as told:
        federation()
    assert [str(one.message) for one in told] == [NOT_HIDDEN]
    with pytest.warns(PrivacyWarning, match="nearly each client's whole update"):
        federation(clusters_of="updates")


@pytest.mark.parametrize("name", ["fedavg-wc", "detrust"])
def test_others_are_told_nothing_of_the_kind(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federation(name)


@pytest.mark.filterwarnings("ignore:EncCluster does not hide")
@pytest.mark.parametrize("name", ["fedavg-wc", "enccluster", "detrust"])
def test_what_is_agreed_on_comes_back_from_its_text(name: str) -> None:
    settings = federation(name).settings
    assert isinstance(settings, Settings)
    assert Settings.from_canonical(settings.canonical) == settings


@pytest.mark.filterwarnings("ignore:EncCluster does not hide")
@pytest.mark.parametrize("name", ["fedavg-wc", "enccluster"])
def test_a_large_model_is_one_segment_unless_it_is_said_otherwise(name: str) -> None:
    large = initial_model(40_000)
    for size, count in ((None, 1), (10_000, 4)):
        made = Federation(
            Crowd(CLIENTS, len(large)), large, create(name), samples=SAMPLES, segment_size=size
        )
        assert made.agreement is not None
        assert len(made.agreement.keys) == count


@pytest.mark.filterwarnings("ignore:EncCluster does not hide")
def test_clients_can_be_sampled_where_the_average_is_plain() -> None:
    made = federation(agreed={"sampled": 6}, average="plain")
    fit = made.fit(3, progress=False)
    assert [one.included for one in fit.history] == [1.0] * 3
