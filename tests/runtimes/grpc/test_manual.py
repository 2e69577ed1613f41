"""The template of node.toml and its reference say what holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eris.core.errors import InvalidSetting
from eris.runtimes.grpc.settings import NodeSettings, reference
from eris.tables import settings_of, subtables
from support.node_files import ROSTER

DOCS = Path(__file__).parents[3] / "docs" / "node-settings.md"

GIVEN: list[dict[str, object]] = [
    {},
    {
        "node.listen": "127.0.0.1:0",
        "node.folder": Path("here"),
        "membership.directory": "ben:7400",
        "membership.directory_name": "ben",
        "membership.start_with": 4,
        "federation.kept_fraction": 0.05,
        "federation.rule_options": {"learning_rate": 0.5},
        "training.trainer": "eris.demo:trainer",
        "training.options": {"data": 'a "b"\\', "list": [1, 2.5], "deep": {"a b": True}},
        "observe.http": "127.0.0.1:9464",
    },
]


@pytest.mark.parametrize("given", GIVEN)
def test_the_template_loads_back_to_what_was_given(
    tmp_path: Path, given: dict[str, object]
) -> None:
    text = NodeSettings.template("anna", given)
    path = tmp_path / "node.toml"
    path.write_text(text, encoding="utf-8")
    settings = NodeSettings.load(path, {})
    assert settings.node.name == "anna"
    assert settings.tls.certificate == tmp_path / "anna.pem"
    for key, value in given.items():
        title, _, name = key.partition(".")
        found = getattr(getattr(settings, title), name)
        assert found == (tmp_path / value if isinstance(value, Path) else value), key
    for table in subtables(NodeSettings).values():
        for item, _ in settings_of(table):
            assert re.search(rf"^#?{item.name} = ", text, re.MULTILINE), item.name
    # What stands there as a comment is what holds: without the mark it changes nothing.
    defaults = {
        item.name for table in subtables(NodeSettings).values() for item, _ in settings_of(table)
        if item.default is not None and not callable(item.default_factory)
    }  # fmt: skip
    for line in text.splitlines():
        assert len(line) <= 100
        key = line[1:].split(" = ")[0]
        if line.startswith("#") and not line.startswith("# ") and key in defaults:
            assert f"\n{line}\n" in text
            text = text.replace(f"\n{line}\n", f"\n{line[1:]}\n")
    path.write_text(text, encoding="utf-8")
    assert NodeSettings.load(path, {}) == settings


def test_the_template_of_a_roster_leaves_to_it_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "roster.toml").write_text(ROSTER, encoding="utf-8")
    path = tmp_path / "node.toml"
    text = NodeSettings.template("cleo", {"membership.roster": "roster.toml"})
    path.write_text(text, encoding="utf-8")
    assert NodeSettings.load(path, {}).address == "cleo.example.org:7400"


def test_the_template_refuses_a_key_it_does_not_know() -> None:
    with pytest.raises(InvalidSetting, match=r"key in \[node\] is 'lisen'.*'listen'"):
        NodeSettings.template("anna", {"node.lisen": "x"})
    with pytest.raises(InvalidSetting, match="table is 'nod'"):
        NodeSettings.template("anna", {"nod.listen": "x"})
    with pytest.raises(InvalidSetting, match=r"node.name is 'Anna'"):
        NodeSettings.template("Anna")


def test_the_manual_lists_every_setting_as_it_is() -> None:
    _, mark, rest = DOCS.read_text(encoding="utf-8").partition("## node.toml")
    assert mark + rest == reference(), "put settings.reference() under the heading of the page"
    for title, table in subtables(NodeSettings).items():
        for item, _ in settings_of(table):
            assert f"| {title} | `{item.name}` |" in rest
            assert f"`ERIS_{title}_{item.name}`".upper() in rest.upper()
