"""What the papers print: the file of their figures is whole, and rows quote their own figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits.tables import AUDITS
from eris.experiments.figures import NOTHING
from eris.experiments.runs.printed import COMPARED, printed, tables
from eris.experiments.runs.reproduce import EXPERIMENTS
from eris.methods.eris import ERIS, KEPT_SHARES

FIGURE = re.compile(r"\d+\.\d\d ± \d+\.\d\d")
NAMED = re.compile(r"ERIS table \d+")


@pytest.mark.parametrize("name", tables())
def test_every_row_has_a_figure_in_every_column(name: str) -> None:
    table = tables()[name]
    assert set(table) == {"place", "columns", "rows"}
    assert table["place"]
    for row, figures in table["rows"].items():
        assert len(figures) == len(table["columns"]), row
        if NAMED.fullmatch(name):
            assert all(FIGURE.fullmatch(figure) or figure == NOTHING for figure in figures), row


@pytest.mark.parametrize(
    ("table", "row", "column", "figure"),
    [
        ("ERIS table 12", "ERIS + DSC 3.3 %", "accuracy, 16 samples", "90.26 ± 0.11"),
        ("ERIS table 12", "ERIS + DSC 3.3 %", "membership, 16 samples", "56.11 ± 1.58"),
        ("ERIS table 12", "ERIS + DSC 3.3 %", "membership, 4 samples", "68.48 ± 3.11"),
        ("ERIS table 12", "ERIS + DSC 5 %", "membership, 16 samples", "55.58 ± 1.77"),
        ("ERIS table 13", "ERIS + DSC 3.3 %", "membership, 64 samples", "51.74 ± 0.66"),
        ("ERIS table 10", "ERIS + DSC 0.6 %", "accuracy, 16 samples", "34.62 ± 1.42"),
        ("ERIS table 10", "ERIS + DSC 0.6 %", "membership, 16 samples", "59.58 ± 2.26"),
        ("ERIS table 15", "FedAvg-LDP ε 10", "membership, MNIST", "60.33 ± 1.42"),
        ("Shatter figure 7", "EL", "linkability", "36.5"),
    ],
)
def test_figures_as_printed(table: str, row: str, column: str, figure: str) -> None:
    assert printed(table, row, column) == figure


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("ERIS table 99", "ERIS", "x"), "table is 'ERIS table 99'; expected one of"),
        (("ERIS table 12", "Eris", "x"), "row of ERIS table 12 is 'Eris'; expected one of"),
        (("ERIS table 12", "ERIS", "x"), "column of ERIS table 12 is 'x'; expected one of"),
    ],
)
def test_a_figure_that_is_not_printed_cannot_be_quoted(asked: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        printed(*asked)


def quoting() -> Iterator[tuple[str, str, str, str]]:
    """Rows of tables of ERIS: title, the kind of figure, label, what they quote."""
    for experiment in EXPERIMENTS.values():
        if NAMED.match(experiment.title):
            for row in experiment.rows:
                yield experiment.title, "accuracy", row.label, row.paper
    for table in AUDITS.values():
        if NAMED.match(table.title):
            for audited in table.rows:
                yield table.title, "membership", audited.label, audited.paper


@pytest.mark.parametrize(("title", "kind", "label", "paper"), list(quoting()))
def test_a_row_quotes_its_own_row_of_the_table_in_its_title(
    title: str, kind: str, label: str, paper: str
) -> None:
    named = NAMED.match(title)
    assert named is not None
    size = re.search(r"(\d+) samples", title)
    assert size is not None
    over_sizes = "means over its sizes" in title
    column = "MNIST" if over_sizes else f"{size[1]} samples"
    assert paper == printed(named[0], label.partition(",")[0], f"{kind}, {column}")


def test_the_share_in_a_label_is_the_share_that_is_kept() -> None:
    """Whatever the rounds: a shortened run keeps what the paper keeps."""
    rows = [(row.label, row.changes) for table in EXPERIMENTS.values() for row in table.rows]
    rows += [(row.label, row.changes) for table in AUDITS.values() for row in table.rows]
    for label, changes in rows:
        share = re.search(r"DSC ([\d.]+) %", label)
        kept = changes.get("method.kept_fraction")
        assert share is None or kept == pytest.approx(float(share[1]) / 100), label
        assert share is not None or kept is None or label == f"p = {kept:g}", label


def test_the_presets_are_the_shares_of_the_papers_tables() -> None:
    columns = {
        "mnist": "MNIST",
        "cifar10": "CIFAR-10",
        "imdb": "IMDB",
        "summaries": "CNN/DailyMail",
    }
    for data, column in columns.items():
        said = printed("ERIS tables 3 and 4", "ERIS + DSC", column)
        assert pytest.approx(float(said.rstrip("%")) / 100) == KEPT_SHARES[data]
        assert ERIS.published(data) == ERIS(kept_fraction=KEPT_SHARES[data], masks="independent")
    with pytest.raises(InvalidSetting, match="data is 'minst'; expected one of mnist"):
        ERIS.published("minst")


def test_shatter_is_named_with_its_degree_everywhere() -> None:
    degrees = {
        label: changes["method.degree"]
        for label, changes in COMPARED.items()
        if changes["method.name"] == "shatter"
    }
    assert degrees == {"Shatter, k = 8, r = 4": 4}
    assert printed("ERIS appendix E", "all methods", "degree of Shatter") == "4"
