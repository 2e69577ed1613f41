"""A charter as a file: what members of a new federation agree on, as ``eris plan`` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eris.core.errors import InvalidSetting, one_of
from eris.runtimes.grpc.sections import FederationTable
from eris.tables import document_in, settings_of

AGREED = {
    "federation": {item.name for item, _ in settings_of(FederationTable)},
    "membership": {"start_with"},
    "plan": {"owners"},
}
"""The tables of a charter, and their keys: those of node.toml that are the same at all members, and
the names of the members that own shards."""


def charter_values(path: Path, name: str) -> dict[str, Any]:
    """What a charter says to the member ``name``, by the keys of ``node.toml``."""
    found = document_in(path, "charter")
    values: dict[str, Any] = {}
    for title, table in found.items():
        if title not in AGREED:
            raise InvalidSetting(f"{path}: table", title, one_of(sorted(AGREED), title))
        if not isinstance(table, dict):
            raise InvalidSetting(f"{path}: {title}", table, "a table")
        for key, value in table.items():
            if key not in AGREED[title]:
                raise InvalidSetting(f"{path}: {title}", key, one_of(sorted(AGREED[title]), key))
            values[f"{title}.{key}"] = value
    owners = values.pop("plan.owners", None)
    if owners is None:
        return values
    if not isinstance(owners, list) or not all(isinstance(one, str) for one in owners):
        raise InvalidSetting(f"{path}: plan.owners", owners, "names in quotes")
    return values | ({} if name in owners else {"node.aggregator": False})
