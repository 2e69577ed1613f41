"""``eris data``, without the network: what it prints, draws and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from eris.cli.data import app
from eris.core.errors import DataUnavailable, InvalidSetting
from eris.data import NAMES, SOURCES, dirichlet
from eris.data.idx import encode_idx
from eris.data.images import IDX_FILES

LABELS = np.arange(200, dtype=np.uint8) % 10


@pytest.fixture(autouse=True)
def wide_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("ERIS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name in IDX_FILES:
        array = np.zeros((200, 28, 28), np.uint8) if "images" in name else LABELS
        (tmp_path / name).write_bytes(encode_idx(array))
    return tmp_path


def run(*arguments: str) -> str:
    # Refusals are shown by `eris` itself (tests/e2e); here they are exceptions.
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_shows_every_data_set_with_its_size_and_licence() -> None:
    shown = run("list")
    assert all(name in shown for name in NAMES)
    assert "139 MB" in shown
    for source in SOURCES:
        assert source.version in shown
    assert "research only" in shown
    assert {source.data for source in SOURCES} | {"digits", "cifar100"} == set(NAMES)


def test_partition_prints_a_summary_and_draws_a_picture(own: Path) -> None:
    options = ["--kind=dirichlet", "--alpha=0.2", "--clients=5", "--samples=16", "--seed=3"]
    picture = own / "split.png"
    shown = run("partition", "mnist", *options, "--path", str(own), "--picture", str(picture))
    assert f"folder {own} (contents sha256 " in shown
    assert "5 clients hold 80 of 200 samples" in shown
    held = [len(np.unique(LABELS[part])) for part in dirichlet(LABELS, 5, 0.2, 3, 16)]
    (row,) = (line for line in shown.splitlines() if "classes" in line)
    assert [int(x) for x in row.split() if x.isdigit()] == [min(held), np.median(held), max(held)]
    with Image.open(picture) as drawn:
        assert drawn.format == "PNG"


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ("--kind iid --clients 4 --samples 5", "4 clients hold 20 of 200"),
        ("--kind iid", "10 clients hold 200 of 200"),
        ("--kind dirichlet --clients 2", "2 clients hold 200 of 200"),
        ("--kind by-class --classes 3 --clients 10", "10 clients hold 200 of 200"),
        ("--kind quantity --exponent 0.5", "10 clients hold 200 of 200"),
    ],
)
def test_every_kind_of_split(own: Path, options: str, held: str) -> None:
    assert held in run("partition", "mnist", "--path", str(own), *options.split())


def test_ratings_are_split_by_user(tmp_path: Path) -> None:
    rows = "".join(f"{i % 6}\t{i}\t{1 + i % 5}\t{i}\n" for i in range(60))
    (tmp_path / "u.data").write_text(rows, encoding="utf-8")
    arguments = ("partition", "movielens-100k", "--path", str(tmp_path), "--kind", "by-user")
    assert "6 clients hold 60 of 60 samples" in run(*arguments)
    assert "3 clients hold 60 of 60 samples" in run(*arguments, "--clients", "3")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--kind iid --alpha 1", "--alpha is 1.0; expected none: only --kind dirichlet takes it"),
        ("--kind quantity --samples 4", "only --kind iid and dirichlet takes it"),
        ("--kind dirichlet --classes 2", "only --kind by-class takes it"),
        ("--kind by-class --exponent 2", "only --kind quantity takes it"),
        ("--kind by-user", "mnist does not name its users"),
        ("--kind iid --clients 3 --samples 100", "at most 66: 3 clients share 200 samples"),
    ],
)
def test_options_that_do_not_fit_are_refused(own: Path, options: str, complaint: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        run("partition", "mnist", "--path", str(own), *options.split())
    assert complaint in str(caught.value)


def test_unknown_and_missing_data_sets_are_refused() -> None:
    for command in ("verify", "fetch", "partition"):
        with pytest.raises(InvalidSetting, match="data set is 'cifar-11'; expected one of"):
            run(command, "cifar-11")
    for command in ("verify", "fetch", "partition"):
        with pytest.raises(DataUnavailable, match="cifar100 is not fetched"):
            run(command, "cifar100")
    for name in {source.data for source in SOURCES}:
        for command in ("verify", "partition"):
            with pytest.raises(DataUnavailable, match=f"`eris data fetch {name}`"):
                run(command, name)


def test_digits_need_no_fetching() -> None:
    for command in ("fetch", "verify"):
        assert "digits: scikit-learn " in run(command, "digits")
