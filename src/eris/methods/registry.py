"""All methods by name: what `eris methods` lists and a recipe names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

from eris.core.compress import COMPRESSORS, Compressor
from eris.core.errors import InvalidSetting, one_of, require
from eris.methods.ako import Ako
from eris.methods.common_grid import MaskedGrid
from eris.methods.detrust import DeTrustFL
from eris.methods.dpsgd import DPSGD
from eris.methods.enccluster import EncCluster
from eris.methods.epidemic import EpidemicLearning
from eris.methods.eris import ERIS
from eris.methods.fedavg import FedAvg
from eris.methods.fedavg_ldp import FedAvgLDP
from eris.methods.fedavg_wc import FedAvgWC
from eris.methods.method import GossipMethod, Method
from eris.methods.min_leakage import MinLeakage
from eris.methods.muffliato import Muffliato
from eris.methods.priprune import PriPrune
from eris.methods.privacy import LocalPrivacy
from eris.methods.qdpsgd import QDPSGD1
from eris.methods.sefl import SEFL
from eris.methods.shatter import Shatter
from eris.methods.soteria import SoteriaFL
from eris.protocol.gossip.peer import GossipSettings

METHODS: Mapping[str, type[Method] | type[GossipMethod]] = {
    method.name: method
    for method in (
        FedAvg,
        ERIS,
        MinLeakage,
        FedAvgWC,
        EncCluster,
        DeTrustFL,
        MaskedGrid,
        SEFL,
        FedAvgLDP,
        SoteriaFL,
        PriPrune,
        Ako,
        QDPSGD1,
        DPSGD,
        EpidemicLearning,
        Muffliato,
        Shatter,
    )
}

PRIVACY = {field.name: field for field in dataclasses.fields(LocalPrivacy)}
"""Settings that make the ``privacy`` of a method that takes one."""


def settings_of(name: str) -> dict[str, Any]:
    """A method's settings and their defaults; None where there is none to give.

    >>> settings_of("priprune")
    {'rate': 0.1, 'adaptive': False, 'energy': 0.5}
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(_known(name)):  # type: ignore[arg-type]
        if field.name == "privacy":
            found["epsilon"] = None
            found |= {n: f.default for n, f in PRIVACY.items() if n != "epsilon"}
        else:
            found[field.name] = None if field.default is dataclasses.MISSING else field.default
    return found


def create(name: str, **settings: Any) -> Method | GossipMethod:
    """A method from its name and settings; ``epsilon`` turns on local privacy where it is optional.

    >>> create("eris", kept_fraction=0.05).name
    'eris'
    >>> create("eris", kept_fractoin=0.05)
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: setting of eris is 'kept_fractoin'; expected one of \
aggregators, kept_fraction, compressor, plan, capacities, rotate, masks, basis, limit, \
mask_groups, epsilon, delta, clip, calibration, secure, ring_bytes, colluders, protects, \
sampling_rate (did you mean 'kept_fraction'?)
    """
    method, known = _known(name), settings_of(name)
    for setting in settings:
        if setting not in known:
            expected = one_of(known, setting) if known else "none: it has no settings"
            raise InvalidSetting(f"setting of {name}", setting, expected)
    if "privacy" in {field.name for field in dataclasses.fields(method)}:  # type: ignore[arg-type]
        budget = {key: settings.pop(key) for key in PRIVACY if key in settings}
        if budget.get("epsilon") is not None:
            settings["privacy"] = LocalPrivacy(**budget)
        elif set(budget) - {"epsilon"}:
            found = ", ".join(sorted(set(budget) - {"epsilon"}))
            raise InvalidSetting(f"setting of {name}", found, "epsilon beside it: the budget")
    if isinstance(settings.get("compressor"), str):
        settings["compressor"] = _compressor(settings["compressor"])
    if isinstance(settings.get("capacities"), list):
        settings["capacities"] = tuple(settings["capacities"])
    return method(**settings)


def agreed(settings: GossipSettings) -> GossipMethod:
    """The method of members that gossip, from what they agreed: without its secrets.

    >>> agreed(GossipSettings(n=10, nodes=3, method="el", parameters=(("degree", 2),)))
    EpidemicLearning(degree=2)
    """
    method = create(settings.method, **dict(settings.parameters))
    if not isinstance(method, GossipMethod):
        raise InvalidSetting("method", settings.method, "one of members that gossip")
    for name in method.public:
        expected = "all public parameters of the method"
        require(name in dict(settings.parameters), "settings", f"without {name}", expected)
    return method


def _known(name: str) -> type[Method] | type[GossipMethod]:
    if name not in METHODS:
        raise InvalidSetting("method", name, one_of(METHODS, name))
    return METHODS[name]


def compressor_text(compressor: Compressor) -> str:
    """What makes a compressor again in a recipe.

    >>> compressor_text(_compressor("qsgd:16")), compressor_text(_compressor("natural"))
    ('qsgd:16', 'natural')
    """
    values = [getattr(compressor, item.name) for item in dataclasses.fields(compressor)]
    return ":".join([compressor.name, *map(repr, values)])


def compressor_words() -> str:
    """What a recipe may have as a compressor.

    >>> compressor_words()
    'rand-p:KEPT_FRACTION, rand-k:KEPT_COUNT, qsgd:LEVELS, uniform:BITS or natural'
    """
    found = []
    for name, kind in COMPRESSORS.items():
        numbers = [item.name.upper() for item in dataclasses.fields(kind)]
        found.append(":".join([name, *numbers]))
    return f"{', '.join(found[:-1])} or {found[-1]}"


def _compressor(text: str) -> Compressor:
    """A compressor from its name and, after a colon, its number: "qsgd:16".

    >>> _compressor("rand-k:100"), _compressor("natural")
    (RandK(kept_count=100), Natural())
    """
    name, colon, number = text.partition(":")
    if name not in COMPRESSORS:
        raise InvalidSetting("compressor", text, one_of(COMPRESSORS, name))
    kind = COMPRESSORS[name]
    takes = [get_type_hints(kind)[item.name] for item in dataclasses.fields(kind)]
    try:
        numbers = [takes[0](number)] if colon else []
        return kind(*numbers)
    except (IndexError, TypeError, ValueError) as error:
        if isinstance(error, InvalidSetting):
            raise
        expected = f"{name}:number" if takes else f"{name}, without a number"
        raise InvalidSetting("compressor", text, expected) from None
