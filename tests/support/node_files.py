"""Settings files of nodes, written to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eris.runtimes.grpc.settings import NodeSettings

MINIMAL = {
    "node": 'name = "anna"\naddress = "anna.example.org:7400"',
    "tls": 'certificate = "anna.pem"\nkey = "/keys/anna.key"\nauthority = "ca.pem"',
    "membership": "host_directory = true\nstart_with = 5",
    "federation": 'name = "clinics"\nrounds = 20',
    "training": 'trainer = "clinic.training:make"',
}
ROSTER = """
[[member]]
name = "anna"
address = "10.0.0.1:7400"
[[member]]
name = "ben"
address = "[2001:db8::2]:7400"
aggregator = false
[[member]]
name = "cleo"
address = "cleo.example.org:7400"
"""


def write(folder: Path, **tables: str) -> Path:
    """A settings file: the least there must be, with other tables or more lines in them."""
    text = ""
    for title in {**MINIMAL, **tables}:
        lines = tables.get(title, MINIMAL.get(title, ""))
        if lines.startswith("+"):
            lines = f"{MINIMAL[title]}\n{lines[1:]}"
        text += f"[{title}]\n{lines}\n"
    path = folder / "node.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, environ: Mapping[str, str] | None = None, /, **tables: str) -> NodeSettings:
    return NodeSettings.load(write(folder, **tables), environ or {})
