"""The scenes of this folder happen as they are written, and the docs quote them word for word.

A change of behaviour is written into them by ``pytest tests/scenes --rewrite``, and is then a
difference to read. A new scene is a new file: commands, ``----``, and the flag fills in the rest.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.scene import COMMANDS, SceneError, play

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "protocol.md"
SCENES = sorted(FOLDER.glob("*.txt"))
QUOTE = re.compile(r"(<!-- scene: ([a-z-]+) (\d+)(?:-(\d+))? -->\n```text\n)(.*?)(```)", re.DOTALL)


def same(path: Path, text: str, rewrite: bool) -> None:
    """A file holds a text; or does from now on."""
    if rewrite:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))


@pytest.mark.parametrize("path", SCENES, ids=lambda path: path.stem)
def test_a_scene_happens_as_it_is_written(path: Path, rewrite: bool) -> None:
    same(path, play(path.read_text(encoding="utf-8")), rewrite)


def blocks(scene: str) -> list[str]:
    """A scene's blocks: commands with their course, and what is said before them."""
    return (FOLDER / f"{scene}.txt").read_text(encoding="utf-8").strip().split("\n\n")


def quoted(found: re.Match[str]) -> str:
    head, scene, first, last, _, fence = found.groups()
    chosen = blocks(scene)[int(first) - 1 : int(last or first)]
    return head + "\n\n".join(chosen) + "\n" + fence


def test_the_docs_quote_every_scene_word_for_word(rewrite: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    same(PAGE, QUOTE.sub(quoted, page), rewrite)
    scenes = [scene for _, scene, *_ in QUOTE.findall(page)]
    assert sorted(scenes) == [path.stem for path in SCENES]
    assert page.count("<!-- scene:") == len(scenes), "a marker that nothing follows"


def test_commands_that_make_no_sense_are_named_with_their_line() -> None:
    for commands, why in (
        ("join all", "line 1: a scene begins with a federation"),
        ("federation size=3", "line 1: no field 'size' of a shape; expected one of members, "),
        ("federation\njoni all", r"line 2: no command 'joni'; expected one of .*join"),
        ("federation\njoin zoe", "line 2: no member 'zoe'; expected one of anna, ben, cleo"),
        ("federation\ndrop from=anna", "line 2: nothing on its way has from=anna"),
        ("federation\ndrop by=anna", "line 2: no choice by 'by'; expected from, to, what or of"),
        ("federation\ntick", "line 2: tick: "),
    ):
        with pytest.raises(SceneError, match=why):
            play(commands + "\n")


def test_every_command_is_used() -> None:
    used = {line.split()[0] for path in SCENES for line in path.read_text("utf-8").splitlines()
            if line and line[0].isalpha()}  # fmt: skip
    assert set(COMMANDS) - used == set()
