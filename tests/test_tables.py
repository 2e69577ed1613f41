"""Tables of options: whatever a recipe holds survives TOML, and what is wrong is named."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.core.toml import toml_key, toml_value
from eris.tables import Table, further, parsed, read, setting

# Everything that a TOML document may hold; half of a surrogate pair is in no document.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False)
SCALARS = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, TEXT)


@dataclass(frozen=True)
class Sample(Table):
    title: ClassVar[str] = "sample"
    count: int = setting("How many.", 3, within="at least 1")
    share: float = setting("How much.", 0.5, within="a number in [0, 1)")
    kind: Literal["red", "green"] = setting("Which.", "red")
    note: str | None = setting("What else.", None, empty="nothing")
    loud: bool = setting("Whether.", False)
    rest: Mapping[str, Any] = further()


@given(SCALARS)
def test_a_value_survives_toml(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}") == {"x": value}
    assert type(tomllib.loads(f"x = {toml_value(value)}")["x"]) is type(value)


@given(st.dictionaries(TEXT, st.one_of(SCALARS, st.lists(SCALARS))))
def test_keys_and_lists_survive_toml(values: dict[str, object]) -> None:
    text = "\n".join(f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items())
    assert tomllib.loads(text) == values


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"count": "three"}, "sample.count is 'three'; expected a whole number"),
        ({"count": True}, "sample.count is True; expected a whole number"),
        ({"count": 2.0}, "sample.count is 2.0; expected a whole number"),
        ({"count": 0}, "sample.count is 0; expected at least 1"),
        ({"share": "a"}, "sample.share is 'a'; expected a number"),
        ({"share": float("inf")}, "sample.share is inf; expected a number"),
        ({"share": 1}, "sample.share is 1.0; expected a number in [0, 1)"),
        ({"kind": "grene"}, "expected one of red, green (did you mean 'green'?)"),
        ({"note": 3}, "sample.note is 3; expected text"),
        ({"loud": 1}, "sample.loud is 1; expected true or false"),
        ({"other": {"deep": 1}}, "sample.other is {'deep': 1}; expected text, a number"),
        (3, "sample is 3; expected a table: [sample]"),
    ],
)
def test_what_is_wrong_is_named(found: object, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read(Sample, found)
    assert says in str(refused.value)


def test_a_table_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(InvalidSetting, match=r"sample.count is 0; expected at least 1"):
        Sample(count=0)
    with pytest.raises(InvalidSetting, match=r"sample.count is None; expected a whole number"):
        replace(Sample(), count=None)  # type: ignore[arg-type]


def test_whole_numbers_serve_as_numbers_and_further_keys_are_kept() -> None:
    table = read(Sample, {"share": 0, "b": [1, 2], "a": "x"})
    assert table.share == 0.0
    assert type(table.share) is float
    assert list(table.rest.items()) == [("a", "x"), ("b", (1, 2))]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", int, 5),
        ("5", float, 5),
        ("5", str, "5"),
        ("5", int | None, 5),
        ("ten", int, "ten"),
        ("5 # five", int, 5),
        ("1\nother = 2", int, "1\nother = 2"),
        ("true", bool, True),
        ("true", Literal["true", "false"], "true"),
        ("[1, [2]]", None, [1, [2]]),
        ('"5"', None, "5"),
        ("", None, ""),
    ],
)
def test_typed_text_is_read_by_the_type_it_is_for(text: str, kind: Any, value: object) -> None:
    assert parsed(text, kind) == value
