"""Methods by name, as commands and recipes write them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from eris.core.compress import QSGD, Natural, RandK, RandP
from eris.core.errors import InvalidSetting
from eris.methods.eris import ERIS
from eris.methods.method import GossipMethod
from eris.methods.privacy import LocalPrivacy
from eris.methods.registry import METHODS, PRIVACY, create, settings_of

NAMES = [f"client-{number}" for number in range(12)]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_made_by_its_name_and_its_defaults(name: str) -> None:
    method = create(name)
    assert type(method) is METHODS[name]
    assert method.name == name
    assert method.paper
    # What is listed as a default is one: saying it changes nothing.
    said = {key: value for key, value in settings_of(name).items() if value is not None}
    if "epsilon" not in said:  # the rest of a budget says nothing without one
        said = {key: value for key, value in said.items() if key not in PRIVACY}
    assert create(name, **said) == method


@pytest.mark.parametrize("name", METHODS)
def test_every_method_composes_its_parts_for_clients(name: str) -> None:
    method = create(name)
    if isinstance(method, GossipMethod):
        parts = method.compose_gossip(NAMES, 100, 1, 0.1, [1] * 12)
        assert parts.members[:12] == tuple(NAMES)
        assert parts.clients == tuple(range(12))
    else:
        view = method.compose(NAMES, range(1, 13)).view
        assert view.members[:12] == tuple(NAMES)
        assert view.clients == tuple(range(12))
        assert view.samples == tuple(range(1, 13))


def test_a_method_is_frozen_settings() -> None:
    for method in METHODS.values():
        assert dataclasses.is_dataclass(method)
        with pytest.raises(dataclasses.FrozenInstanceError):
            create(method.name).name = "other"


def test_a_budget_makes_local_privacy() -> None:
    method = create("eris", epsilon=3.0, clip=2.0, calibration="per-round")
    assert isinstance(method, ERIS)
    assert method.privacy == LocalPrivacy(3.0, clip=2.0, calibration="per-round")
    assert create("eris", epsilon=None) == ERIS()
    assert create("soteriafl", noise=False) != create("soteriafl")


@pytest.mark.parametrize(
    ("text", "compressor"),
    [
        ("rand-p:0.25", RandP(0.25)),
        ("rand-k:7", RandK(7)),
        ("qsgd:16", QSGD(16)),
        ("qsgd", QSGD()),
        ("natural", Natural()),
    ],
)
def test_compressors_from_text(text: str, compressor: object) -> None:
    method = create("eris", compressor=text)
    assert isinstance(method, ERIS)
    assert method.compressor == compressor


def test_capacities_from_a_list() -> None:
    assert create("eris", capacities=[1, 2.5]) == ERIS(capacities=(1, 2.5))


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("fedavgg", {}, "method is 'fedavgg'; expected one of fedavg, eris"),
        ("fedavgg", {}, "(did you mean 'fedavg'?)"),
        ("fedavg", {"rate": 1}, "setting of fedavg is 'rate'; expected none: it has no settings"),
        ("priprune", {"rat": 0.1}, "one of rate, adaptive, energy (did you mean 'rate'?)"),
        ("priprune", {"rate": 1.5}, "rate is 1.5"),
        ("priprune", {"adaptive": True, "energy": 0.0}, "energy is 0.0"),
        ("eris", {"delta": 1e-5}, "epsilon beside it: the budget"),
        ("eris", {"clip": 1.0, "epsilon": None}, "epsilon beside it: the budget"),
        ("eris", {"epsilon": -1.0}, "epsilon is -1.0"),
        ("eris", {"compressor": "qsdg:4"}, "(did you mean 'qsgd'?)"),
        ("eris", {"compressor": "qsgd:four"}, "compressor is 'qsgd:four'"),
        ("eris", {"compressor": "rand-p"}, "compressor is 'rand-p'; expected rand-p:number"),
        ("eris", {"compressor": "rand-p:2"}, "kept_fraction is 2.0"),
        ("eris", {"compressor": "top-k:3"}, "compressor is 'top-k:3'; expected one of rand-p"),
        ("soteriafl", {"kept_fraction": 0.0}, "kept_fraction is 0.0"),
        ("soteriafl", {"epsilon": 0}, "epsilon is 0"),
        ("fedavg-ldp", {"calibration": "weekly"}, "calibration is 'weekly'"),
        ("fedavg-ldp", {"delta": 1.0}, "delta is 1.0"),
        ("fedavg-ldp", {"clip": 0.0}, "sensitivity is 0.0"),
    ],
)
def test_what_cannot_be_is_named(name: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        create(name, **settings)
    assert says in str(refused.value)
