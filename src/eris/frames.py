"""The history of a training as a pandas data frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eris.core.errors import library

if TYPE_CHECKING:
    from eris.session import RoundRecord


def history_frame(history: Sequence[RoundRecord], *, clients: bool = False) -> Any:
    """One row a round, or a round and client; extra ``frames``."""
    pandas = library("pandas", "pandas", "frames")
    rows = _client_rows(history) if clients else map(_row, history)
    index = ["round", "client"] if clients else ["round"]
    found = pandas.DataFrame(list(rows))
    return found.set_index(index) if len(found) else found


def _row(record: RoundRecord) -> dict[str, Any]:
    return {
        "round": record.round,
        "included": record.included,
        "refused": len(record.refused),
        "sent": sum(record.traffic.sent.values()),
        "received": sum(record.traffic.received.values()),
        **record.metrics,
    }


def _client_rows(history: Sequence[RoundRecord]) -> Iterator[dict[str, Any]]:
    for record in history:
        for client in sorted({*record.clients, *record.evaluated}):
            evaluated = record.evaluated.get(client, {})
            yield {
                "round": record.round,
                "client": client,
                **record.clients.get(client, {}),
                **{f"evaluated_{name}": value for name, value in evaluated.items()},
            }
