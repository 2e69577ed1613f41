"""The house rules of docs/design.md hold themselves.

Rooms import only towards the left; files are small; no two public classes share a name; pages have
one title, and what they link to is there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "eris"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LONGEST = 500
"""Lines of a file; about 400 is what one reads in a sitting."""
ONE_PAPER = {"FedAvg"}
"""The rule and the method of one paper; agreements and stored runs know the rule by this name."""

READS_A_PICKLE = SOURCE / "data" / "lpips.py"
"""Of a package that has its weights in one; by an unpickler that knows four names of numpy."""

BESIDE = {"files", "model_file", "named", "tables"}
"""Files beside the rooms that do one job."""

MAY_SEE = {
    "core": set(),
    "protocol": {"core"},
    "methods": {"core", "protocol"},
    "runtimes": {"core", "protocol", "methods", "training"} | BESIDE,
    "training": {"core", "protocol"},
    "theory": {"core", "protocol"},
    "planning": {"core", "protocol", "theory"},
    "audit": {"core", "protocol", "methods", "training", "theory", "models", "files"},
    "data": {"core", "files", "named"},
    "models": {"core"},
}
"""Rooms not named here (experiments, cli, testing, the front door) may see all."""

NOT_IN_CORE = {"torch", "os", "io", "pathlib", "socket", "subprocess", "asyncio", "time", "random"}
NOT_IN_PROTOCOL = {"torch", "os", "socket", "subprocess", "asyncio", "time", "random", "threading"}


def imported(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(room: str = "") -> list[Path]:
    found = sorted((SOURCE / room).rglob("*.py"))
    return [path for path in found if not path.name.endswith("_pb2.py")]


# -- imports ----------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [room for room in MAY_SEE if (SOURCE / room).is_dir()])
def test_rooms_see_only_what_lies_to_their_left(room: str) -> None:
    assert files(room)
    for path in files(room):
        for module in imported(path):
            parts = module.split(".")
            if parts[0] != "eris" or len(parts) < 2:
                assert module != "eris", f"{path} imports the front door"
                continue
            assert parts[1] in MAY_SEE[room] | {room}, f"{path} imports {module}"


@pytest.mark.parametrize(
    ("room", "forbidden"), [("core", NOT_IN_CORE), ("protocol", NOT_IN_PROTOCOL)]
)
def test_mathematics_and_protocol_do_no_input_or_output(room: str, forbidden: set[str]) -> None:
    for path in files(room):
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & forbidden, f"{path} imports {roots & forbidden}"


def test_the_check_sees_an_import_that_goes_the_wrong_way(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def late():\n    from eris.runtimes import local\n", encoding="utf-8")
    assert "eris.runtimes" in set(imported(wrong))


def test_nothing_is_pickled() -> None:
    for path in files():
        if path == READS_A_PICKLE:
            continue
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & {"pickle", "dill", "cloudpickle", "shelve", "marshal"}, path


# -- files and names --------------------------------------------------------------------------


def test_files_are_short_enough_to_read() -> None:
    for path in [*files(), *(ROOT / "tests").rglob("*.py")]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= LONGEST, f"{path} has {lines} lines"


def homonyms(paths: Iterable[Path]) -> dict[str, list[str]]:
    """The public classes that more than one file has, and where."""
    homes = defaultdict(list)
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(f"{path}:{node.lineno}")
    return {name: places for name, places in homes.items() if len(places) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    assert homonyms(files()).keys() == ONE_PAPER


def test_the_check_sees_a_name_that_is_taken(tmp_path: Path) -> None:
    for name, code in (("a.py", "class View: ...\nclass _Own: ..."), ("b.py", "class View: ...")):
        (tmp_path / name).write_text(code, encoding="utf-8")
    assert list(homonyms(sorted(tmp_path.glob("*.py")))) == ["View"]
    (tmp_path / "b.py").write_text("class Other: ...\nclass _Own: ...", encoding="utf-8")
    assert homonyms(tmp_path.glob("*.py")) == {}


# -- pages ------------------------------------------------------------------------------------


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def headings(page: Path) -> list[tuple[int, str]]:
    """(depth, text) of every heading."""
    found = re.findall(r"^(#+) +(.+?) *$", prose(page), re.M)
    return [(len(marks), text) for marks, text in found]


def anchors(page: Path) -> set[str]:
    """What a link into the page may name: each heading in the form that GitHub gives it."""
    found: list[str] = []
    for _, text in headings(page):
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        taken = sum(one == slug or re.fullmatch(f"{re.escape(slug)}-\\d+", one) is not None
                    for one in found)  # fmt: skip
        found.append(f"{slug}-{taken}" if taken else slug)
    return set(found)


def dead_links(page: Path) -> list[str]:
    """The links of a page to files and headings that are not there."""
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):  # elsewhere
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_one_title_and_links_that_lead_somewhere(page: Path) -> None:
    depths = [depth for depth, _ in headings(page)]
    assert depths[:1] == [1], f"{page} does not begin with a title"
    assert depths.count(1) == 1, f"{page} has {depths.count(1)} titles"
    assert dead_links(page) == []


def test_the_check_sees_links_that_lead_nowhere(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n## What `eris run` does\n## Twice\n## Twice\n"
        "[a](page.md) [b](#what-eris-run-does) [c](page.md#twice-1) [d](https://example.org/x)\n"
        "[e](gone.md) [f](#nowhere)\n```\n# not a title\n[g](code.md)\n```\n",
        encoding="utf-8",
    )
    assert headings(page)[0] == (1, "One")
    assert dead_links(page) == ["gone.md", "#nowhere"]
