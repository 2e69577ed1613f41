"""The program that prints what mappings and sums give away."""

from __future__ import annotations

import json

import pytest

from eris.core.errors import InvalidSetting
from eris.experiments.audits.mapping_tables import main


def test_a_table_and_its_figures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--only", "sampling"])
    table, figures = capsys.readouterr().out.rsplit("\n{", 1)
    assert "50 runs" in table
    rows = json.loads("{" + figures)["sampling"]
    assert [row["clients"] for row in rows] == [10, 30, 30]
    assert rows[1]["all"][:2] == [30, 30]


def test_a_table_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="did you mean 'sampling'"):
        main(["--only", "samplings"])
