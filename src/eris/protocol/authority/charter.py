"""The charter: a federation's agreed settings as text, and in what two of them differ.

The directory keeps the text and compares it letter by letter; people are told the differences by
the names that the settings have in ``node.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from eris.core.compress import COMPRESSORS, RandP
from eris.core.rules import RULES

LONGEST_CHARTER = 48 * 1024
"""Characters; a request to the directory, which carries one, has at most 64 KiB."""
MOST_LINES = 20
"""Differences that are spelled out."""
_LONGEST_VALUE = 80
SECURE = "secure_sums"
COMPRESSOR, _OF_COMPRESSORS = "scheme.compressor.kind", "scheme.compressor."

_NAMES = {
    "plan.shards": "federation.shards",
    "scheme.compressor.kept_fraction": "federation.kept_fraction",
    "precision.value_range": "federation.value_range",
    "start_with": "membership.start_with",
    "plan.kind": "federation.plan",
    "rule.kind": "federation.rule",
    "scheme.kind": "federation.basis",
    "scheme.limit": "federation.limit",
    "scheme.groups": "federation.mask_groups",
    "secure.ring_bytes": "federation.ring_bytes",
    "secure.colluders": "federation.colluders",
    "noise.epsilon": "federation.epsilon",
    "noise.delta": "federation.delta",
    "noise.protects": "federation.protects",
    "noise.clip": "federation.clip",
    "noise.sampling_rate": "federation.sampling_rate",
    "noise.samples": "federation.most_samples",
    "noise.clients": "federation.most_clients",
    "noise.sigma": "federation.sigma",
    "noise.of_a_client": "federation.of_a_client",
}
_DECIDE_NOISE = {"noise.epsilon", "noise.delta", "noise.protects", "noise.clip",
                 "noise.sampling_rate", "rounds", "min_included", "start_with", SECURE,
                 "secure.colluders"}  # fmt: skip
_COMPRESSORS = {kind.__name__: name for name, kind in COMPRESSORS.items() if kind is not RandP}
_KINDS = {kind.__name__: name for name, kind in RULES.items()}
_KINDS |= {"Masked": "coordinates", "Rotated": "rotated", "Grouped": "rotated"}
"""Parts by the words that ``node.toml`` has for them."""


def differences(mine: str, theirs: str) -> list[str]:
    """Where two charters differ, a line each; nothing if they say the same.

    ``theirs`` comes from another member: whatever it is, the answer is short lines of text.

    >>> differences('{"n": 61706, "seed": 1}', '{"n": 44426, "seed": 1}')
    ['the model has 61,706 parameters here, 44,426 in the federation']
    """
    if len(theirs) > LONGEST_CHARTER:
        return [
            f"the federation's charter has {len(theirs):,} characters; at most {LONGEST_CHARTER:,}"
        ]
    try:
        here, there = (_worded(dict(_flat(json.loads(text)))) for text in (mine, theirs))
    except (ValueError, RecursionError):
        return ["the federation's charter is not one that this version of eris can read"]
    keys = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
    noisy = all("noise.epsilon" in flat for flat in (here, there))
    lines = [_line(key, here.get(key), there.get(key)) for key in _telling(keys, noisy)]
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"and {more} more differences"]


def departures(here: str, federation: str) -> str:
    """The same in one line, where they are known not to be letter for letter the same."""
    if len(here.encode()) > LONGEST_CHARTER:
        return f"they have more than {LONGEST_CHARTER} bytes"
    return "; ".join(differences(here, federation)) or "their texts are not the same"


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every single value by its dotted key; what is null is not set."""
    if isinstance(value, Mapping):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = [(str(index), item) for index, item in enumerate(value)]
    elif prefix:
        if value is not None:
            yield prefix, value
        return
    else:
        raise ValueError("a charter is an object")
    for key, item in inside:
        yield from _flat(item, f"{prefix}.{key}" if prefix else key)


def _worded(flat: dict[str, object]) -> dict[str, object]:
    """Secure sums, noise and compressors in the words that ``node.toml`` has for them."""
    if (name := _COMPRESSORS.get(str(flat.get(COMPRESSOR)))) is not None:
        del flat[COMPRESSOR]
        numbers = [str(flat.pop(key)) for key in sorted(flat) if key.startswith(_OF_COMPRESSORS)]
        flat["compressor"] = ":".join([name, *numbers])
    need, seats = (flat.pop(f"secure.threshold.{name}", None) for name in ("need", "seats"))
    kinds = re.compile(r"(secure|noise)\..*kind$")
    rest = {key: value for key, value in flat.items() if not kinds.match(key)}
    return rest | {SECURE: "none" if need is None else f"{need} of {seats}"}


def _telling(keys: list[str], noisy: bool) -> list[str]:
    """Without differences that follow from others; ``noisy``: both have noise."""
    follows = {"noise.rounds"}
    options = [key for key in keys if key.startswith("method_options.")]
    if "method" in keys or options:
        parts = ("plan.", "scheme.", "secure.", "noise.", "parameters.")
        follows |= {key for key in keys if key.startswith(parts)} | {SECURE, "segment_size"}
    if "method" in keys:
        follows |= {*options, "min_included", "quorum", "non_finite"}
    if "n" in keys:
        follows.add("initial")  # models of two sizes cannot be equal
    if "scheme.compressor.kept_fraction" in keys:
        follows |= {"scheme.kind", "scheme.compressor.kind"}
    if "compressor" in keys:
        follows |= {"scheme.kind", COMPRESSOR}
    if "scheme.groups" in keys:
        follows.add("scheme.kind")  # rotated, in groups
    if "start_with" in keys:
        follows.add("nodes")  # of those who gossip
    follows.add("scheme.shift")  # of the basis and the limit
    if SECURE in keys:
        follows |= {key for key in keys if key.startswith("secure.")}
    if SECURE in keys or "secure.colluders" in keys:
        follows |= {"min_included", "quorum"}
    if "noise.epsilon" in keys and not noisy:
        follows |= {key for key in keys if key.startswith("noise.") and key != "noise.epsilon"}
        follows |= {"non_finite", "min_included", "quorum"}
    if noisy and {*keys} & _DECIDE_NOISE:
        follows |= {"noise.sigma", "noise.of_a_client"}
    if any(key in ("n", "plan.shards") or key.startswith("scheme.") for key in keys):
        follows.add("segment_size")
    return [key for key in keys if key not in follows]


def _line(key: str, here: object, there: object) -> str:
    if key == "n" and type(here) is int and type(there) is int:
        return f"the model has {here:,} parameters here, {_shown(there, ',')} in the federation"
    if key == "initial":
        known = "SHA-256 of the initial model"
        return f"the {known} is {_shown(here)} here, {_shown(there)} in the federation"
    return (
        f"{_name(key)} is {_shown(here, key=key)} here, {_shown(there, key=key)} in the federation"
    )


def _name(key: str) -> str:
    if key in _NAMES:
        return _NAMES[key]
    if key.startswith("rule."):
        return "federation.rule_options." + _cut(json.dumps(key[5:])[1:-1])
    return "federation." + _cut(json.dumps(key)[1:-1])


def _shown(value: object, grouped: str = "", key: str = "") -> str:
    """A value in few printable characters."""
    if value is None:
        return "not set"
    if grouped and type(value) is int and value < 10**18:
        return f"{value:{grouped}}"
    if key.endswith(".kind") and isinstance(value, str):
        value = _KINDS.get(value, value)
    return _cut(json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
