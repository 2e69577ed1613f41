"""What the documentation quotes from the papers is what they print, beside its own row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eris.experiments.audits.shatter_privacy import FIGURE
from eris.experiments.audits.tables import AUDITS
from eris.experiments.figures import NOTHING
from eris.experiments.runs.printed import printed, tables
from eris.experiments.runs.reproduce import EXPERIMENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("reproduce.md", "audit.md", "threat-model.md")
SPREAD = re.compile(r"\d+\.\d\d ± \d+\.\d\d")
NAMED = re.compile(r"`(?:eris reproduce )?([a-z0-9-]+)(?: --seeds[^`]*)?`")
QUOTED = {
    **{name: {row.label: row.paper for row in known.rows} for name, known in EXPERIMENTS.items()},
    **{name: {row.label: row.paper for row in known.rows} for name, known in AUDITS.items()},
}


class Line(NamedTuple):
    """A line of a table: the experiment it is of, and its cells by the heads of their columns."""

    name: str
    cells: dict[str, str]


def lines(page: str) -> Iterator[Line]:
    """Lines of the tables of experiments that have a column for the paper."""
    name, head = "", list[str]()
    for text in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if not text.startswith("|"):
            head = []
            found = [word for word in NAMED.findall(text) if word in QUOTED]
            name = found[-1] if found else name
            continue
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if not head:
            head = cells
        elif "paper" in head and not set(cells[0]) <= {"-"}:
            yield Line(name, dict(zip(head, cells, strict=True)))


def test_there_are_tables_to_look_at() -> None:
    assert len(list(lines("reproduce.md"))) >= 13
    assert len({line.name for line in lines("audit.md")}) >= 6


@pytest.mark.parametrize("page", ["reproduce.md", "audit.md"])
def test_a_table_quotes_what_the_command_prints(page: str) -> None:
    """A row in another setting than the command's has no figure of the paper beside it."""
    for name, cells in lines(page):
        label = next(iter(cells.values()))
        assert cells["paper"] == QUOTED[name].get(label, NOTHING), (name, label)


def test_headings_of_audits_are_the_titles_of_their_tables() -> None:
    text = (DOCS / "audit.md").read_text(encoding="utf-8")
    for heading, name in re.findall(r"^### (.+) \(`(audit-[a-z0-9-]+)`\)$", text, re.MULTILINE):
        assert heading == AUDITS[name].title


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_with_a_deviation_outside_of_tables_is_printed_somewhere(page: str) -> None:
    known = {
        figure
        for table in tables().values()
        for row in table["rows"].values()
        for figure in row
    }  # fmt: skip
    for text in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if not text.startswith("|"):
            assert set(SPREAD.findall(text)) <= known, text


def of(table: int, row: str, column: str) -> str:
    """A mean of a table of ERIS, as sentences quote it."""
    return f"{float(printed(f'ERIS table {table}', row, column).partition(' ')[0]):.1f}"


DSC = "ERIS + DSC 3.3 %"
SENTENCES = [
    ("audit.md", r"FedAvg [\d.]+ \({}\), ERIS [\d.]+ \({}\), ERIS with DSC [\d.]+ \({}\)",
     [of(12, row, "membership, 16 samples") for row in ("FedAvg", "ERIS", DSC)]),
    ("audit.md", r" 4 samples [\d.]+, [\d.]+ and [\d.]+ \({}, {}, {}\)",
     [of(12, row, "membership, 4 samples") for row in ("FedAvg", "ERIS", DSC)]),
    ("audit.md", r"64 samples [\d.]+ and [\d.]+ \({} and {}\)",
     [of(13, row, "membership, 64 samples") for row in ("FedAvg", "ERIS")]),
    ("audit.md", r"\([\d., ]+ against {}, {}, {}\)",
     [of(12, f"PriPrune {rate}", "membership, 16 samples") for rate in ("0.01", "0.05", "0.1")]),
    ("audit.md", "{} for ERIS, as they print", [of(8, "ERIS", "membership, 16 samples")]),
    ("audit.md", "after 14 to 22, has {} %", [of(8, "FedAvg", "accuracy, 16 samples")]),
    ("audit.md", "AUC {} % for EL, {} % for k = 2, {} % for k = 16",
     [printed(FIGURE, row, "membership AUC")
      for row in ("EL", "Shatter, k = 2", "Shatter, k = 16")]),
    ("audit.md", "linkability {} % for EL, {} % for k = 16",
     [printed(FIGURE, row, "linkability") for row in ("EL", "Shatter, k = 16")]),
    ("reproduce.md", "nearly constant up to {} %",
     [printed("ERIS F.5", "ERIS", "aggregator dropout").rstrip("%")]),
    ("reproduce.md", "holds up to about {} %",
     [printed("ERIS F.5", "ERIS", "link failures").rstrip("%")]),
    ("reproduce.md", r"160 rounds \(the authors: {}\)",
     [printed("ERIS appendix E", "all methods", "rounds, MNIST").replace("–", " to ")]),
    ("reproduce.md", r"100 rounds \(the authors: {}\)",
     [printed("ERIS appendix E", "all methods", "rounds, CIFAR-10").replace("–", " to ")]),
]  # fmt: skip


@pytest.mark.parametrize(("page", "sentence", "figures"), SENTENCES)
def test_a_sentence_quotes_what_is_printed(page: str, sentence: str, figures: list[str]) -> None:
    wanted = re.compile(sentence.format(*map(re.escape, figures)))
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert wanted.search(text), wanted.pattern


def test_what_is_lost_without_aggregators_is_what_the_table_says() -> None:
    text = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| \d+ \| [\d.]+ \| \d+ \|$", text, re.MULTILINE)
    accuracy = {float(rate): float(percent) for rate, percent in rows}
    said = "ours loses {:.1f} points at 0.5, {:.1f} at 0.7 and {:.1f} at 0.8"
    lost = said.format(*(accuracy[0.0] - accuracy[rate] for rate in (0.5, 0.7, 0.8)))
    assert lost in " ".join(text.split())


def test_the_threat_model_has_of_shatter_what_the_tables_of_its_audits_have() -> None:
    named = ("audit-mnist", "Shatter, k = 8, r = 4")
    (found,) = (
        cells for name, cells in lines("audit.md") if (name, next(iter(cells.values()))) == named
    )
    told = f"they get {found['aligned']} % by alignment from an eighth of a model"
    text = (DOCS / "threat-model.md").read_text(encoding="utf-8")
    assert f"{told} (null {found['null']} %)" in text
    audits = (DOCS / "audit.md").read_text(encoding="utf-8")
    whole, chunks = (
        re.findall(rf"^\| {row} \|[^|]*\|[^|]*\| ([\d.]+) \(", audits, re.MULTILINE)[-1]
        for row in ("EL", "Shatter, k = 16")
    )
    linked = f"linkability {float(whole):.0f} % (whole models) → {float(chunks):.0f} % (k = 16;"
    assert linked in text
