"""Every block of the site's pages runs, or is at least parsed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.blocks import ROOT, Block, blocks, follow, parse
from support.command import Eris

DOCS = ROOT / "docs"
FOLLOWED = sorted(
    path
    for pattern in ("index.md", "commands.md", "concepts.md", "refusals.md", "first-federation.md",
                    "doors/*.md", "howto/*.md")
    for path in DOCS.glob(pattern)
)  # fmt: skip
ALL = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


@pytest.fixture
def eris(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Eris]:
    from eris.experiments.audits.auditing import ATTACKS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules, attacks = {*sys.modules}, dict(ATTACKS)
    yield Eris(monkeypatch, capsys)
    ATTACKS.clear()
    ATTACKS.update(attacks)
    for name in {*sys.modules} - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_can_be_followed_from_top_to_bottom(page: Path, eris: Eris) -> None:
    follow(page, eris)


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_every_page_is_well_formed(page: Path) -> None:
    """Commands exist and take these options; Python and TOML can be read."""
    for block in blocks(page):
        parse(block)


def test_most_blocks_of_the_followed_pages_run() -> None:
    found = [block for page in FOLLOWED for block in blocks(page)]
    assert len(found) > 35
    assert sum(block.runs for block in found) > 0.75 * len(found)


@pytest.mark.parametrize(
    "block",
    [
        Block("sh", None, "eris rum --data digits\n", runs=True),
        Block("sh", None, "eris local 5 --learning-rate 3\n", runs=False),
        Block("sh", None, "make coffee\n", runs=False),
        Block("python", None, "def :\n", runs=False),
        Block("toml", None, "a = \n", runs=False),
        Block("pyhton", None, "", runs=False),
    ],
)
def test_the_check_sees_blocks_that_are_wrong(block: Block) -> None:
    with pytest.raises(Exception, match=r"\w"):
        parse(block)


def test_a_page_that_says_what_a_command_does_not_is_seen(tmp_path: Path, eris: Eris) -> None:
    page = tmp_path / "page.md"
    for text in (
        "```console\n$ eris methods nobody\nerror: method is 'somebody'\n```\n",
        "```sh\neris methods nobody\n```\n",
        "```python\nassert 1 + 1 == 3\n```\n",
    ):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError):
            follow(page, eris)
