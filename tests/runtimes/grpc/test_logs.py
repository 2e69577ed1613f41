"""Logs: one line an event, nothing of an update in them, nothing a peer could forge."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting
from eris.protocol.messages import Payload
from eris.runtimes.grpc import logs
from eris.runtimes.grpc.logs import configure, event

LOGGER = logging.getLogger("eris.test")


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """The logger is the process's: other tests get it as they had it."""
    logger = logging.getLogger(logs.LOGGER)
    before = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def stream_of(level: str, format: str) -> io.StringIO:
    stream = io.StringIO()
    configure(level, format, stream)
    return stream


def test_text_is_a_line_for_people() -> None:
    stream = stream_of("info", "text")
    event(LOGGER, logging.INFO, "round closed", round=3, owner="anna", why="two of five")
    time, rest = stream.getvalue().split(" ", 1)
    assert datetime.fromisoformat(time).tzinfo == UTC
    assert rest == 'INFO    round closed round=3 owner=anna why="two of five"\n'


def test_json_is_an_object_a_line() -> None:
    stream = stream_of("debug", "json")
    event(LOGGER, logging.WARNING, "peer lost", peer="ben", level=7, folder=Path("/state"))
    LOGGER.debug("%d of %s", 3, "five", extra={"fields": {"loss": float("nan")}})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert datetime.fromisoformat(first.pop("time")).tzinfo == UTC
    assert first == {
        "level": "warning", "logger": "eris.test", "event": "peer lost", "peer": "ben",
        "level_": 7, "folder": "/state",
    }  # fmt: skip
    assert (second["event"], second["level"], second["loss"]) == ("3 of five", "debug", "nan")


def test_what_is_below_the_level_is_not_logged() -> None:
    stream = stream_of("warning", "text")
    event(LOGGER, logging.INFO, "round closed")
    assert stream.getvalue() == ""
    event(LOGGER, logging.ERROR, "disk full")
    assert "disk full" in stream.getvalue()


def test_configuring_again_replaces_the_stream(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = stream_of("info", "text"), stream_of("info", "json")
    event(LOGGER, logging.INFO, "once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
    configure()
    event(LOGGER, logging.INFO, "to standard error")
    assert "to standard error" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["text", "json"])
def test_values_of_an_update_are_never_shown(format: str) -> None:
    stream = stream_of("info", format)
    secret = 123.4375
    update = np.full(1000, secret, np.float32)
    payload = Payload(Encoded(Encoding.DENSE, 1000, update.tobytes(), 0.0), 0)
    event(LOGGER, logging.INFO, "sent", update=update, payload=payload, raw=b"123.4375")
    event(LOGGER, logging.INFO, "deep", parts={"a": [update, {"b": (update,)}]})
    LOGGER.info("old style %s %r", update, payload)
    LOGGER.info("by name %(update)s", {"update": update})
    LOGGER.info(update)
    assert len(stream.getvalue().splitlines()) == 5
    assert "123.4375" not in stream.getvalue()
    assert "float32 array of shape (1000,)" in stream.getvalue()


def test_long_values_show_their_beginning() -> None:
    stream = stream_of("info", "json")
    event(LOGGER, logging.INFO, "many", numbers=list(range(1000)), members=frozenset({10, 9}),
          peers={str(i): i for i in range(100)}, text="x" * 5000)  # fmt: skip
    line = json.loads(stream.getvalue())
    assert line["numbers"] == [*range(16), "… 984 more"]
    assert line["members"] == [9, 10]
    assert len(line["peers"]) == 17
    assert len(line["text"]) == 1001


def test_a_peer_cannot_forge_a_line_or_colour_a_terminal() -> None:
    stream = stream_of("info", "text")
    forged = "x\n2026-01-01T00:00:00.000Z ERROR   fire \x1b[31m"
    event(LOGGER, logging.INFO, forged, reason=forged)
    try:
        raise ValueError(forged)
    except ValueError:
        LOGGER.exception("failed")
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert "ERROR   fire" in lines[0]
    assert [line for line in lines[1:] if not line.startswith("    ")] == [lines[1]]
    assert lines[1].endswith("failed")
    assert any("ValueError" in line for line in lines[2:])


def test_a_trace_is_in_the_object_of_its_line() -> None:
    stream = stream_of("info", "json")
    try:
        raise ValueError("no such shard")
    except ValueError:
        LOGGER.exception("failed")
    line = json.loads(stream.getvalue())
    assert line["event"] == "failed"
    assert line["exception"].endswith("ValueError: no such shard")


def test_an_unknown_level_or_format_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="log_level is 'loud'; expected one of debug"):
        configure("loud")
    with pytest.raises(InvalidSetting, match="log_format is 'xml'; expected one of text, json"):
        configure(format="xml")
