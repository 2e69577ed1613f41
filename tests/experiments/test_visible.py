"""Quality against the visible share: points, masks, what is kept, the table, the picture."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from eris.audit.inversion import INVERSIONS
from eris.audit.similarity import Lpips
from eris.core.errors import InvalidSetting
from eris.data.lpips import load_lpips
from eris.experiments.audits import visible
from eris.experiments.audits.defences import summary
from eris.experiments.audits.visible import (
    SHARES,
    Point,
    VisibleSettings,
    as_table,
    as_toml,
    draw,
    gradients,
    masks,
    points,
    victims,
)
from eris.theory.reconstruction import Measured
from eris.training.flat import parameter_count
from support.lpips import use_stand_in


def test_points_are_all_attacks_on_all_data_in_both_modes() -> None:
    attacks = [name for name in visible.ATTACKS if name in INVERSIONS]
    found = VisibleSettings().points
    # Seen whole, both modes are one.
    assert len(found) == 3 * len(attacks) * (2 * len(SHARES) - 1)
    assert len(VisibleSettings(attack="cosine", data="faces").points) == 2 * len(SHARES) - 1


def test_masks_of_smaller_shares_lie_in_those_of_larger_ones() -> None:
    half, tenth = (masks(3, 20_000, share, seed=0) for share in (0.5, 0.1))
    for number in range(3):
        assert half[number].float().mean().item() == pytest.approx(0.5, abs=0.02)
        assert tenth[number].float().mean().item() == pytest.approx(0.1, abs=0.01)
        assert not (tenth[number] & ~half[number]).any()


@pytest.mark.parametrize(
    ("data", "attack", "shape", "parameters"),
    [("faces", "idlg", (1, 32, 32), 38_296), ("mnist", "idlg", (1, 28, 28), 13_426),
     pytest.param("cifar10", "cosine", (3, 32, 32), 34_826, marks=pytest.mark.slow)],
)  # fmt: skip
def test_networks_fit_the_data(
    data: str, attack: str, shape: tuple[int, ...], parameters: int
) -> None:
    found = victims(Point(data, attack, "mask-aware", 1.0), 2, seed=0)
    assert found.images.shape == (2, *shape)
    assert parameter_count(found.model) == parameters
    if data == "faces":
        assert found.labels[0] != found.labels[1]
    sent = gradients(found)
    assert [len(sent[number]) for number in (0, 1)] == [parameters] * 2


def made_up(point: Point, *rest: Any) -> dict[str, Any]:
    figures = {name: summary([point.share, point.share + 0.1]) for name in
               ("LPIPS", "PSNR", "control LPIPS", "control PSNR", "below control",
                "above control")}  # fmt: skip
    return {"data": point.data, "attack": point.attack, "mode": point.mode, "share": point.share,
            "images": 2, "reconstructed": 0, **figures}  # fmt: skip


def test_points_are_made_once_written_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Point] = []

    def counted(point: Point, *rest: Any) -> dict[str, Any]:
        made.append(point)
        return made_up(point)

    monkeypatch.setattr(visible, "measured", counted)
    use_stand_in(monkeypatch, tmp_path / "lpips", visible)
    settings = VisibleSettings(attack="cosine", runs=str(tmp_path), images=2)
    first = list(points(settings))
    assert list(points(settings)) == first
    assert made == settings.points
    assert as_table(first, settings).row_count == 3 * 2
    read = tomllib.loads(as_toml(first, settings))["points"]
    assert len(read) == len(first) + 3  # those seen whole are of both modes
    assert {Measured(**one).images for one in read} == {2}
    with Image.open(draw(first, tmp_path / "curves.png")) as picture:
        assert picture.width > 2 * picture.height


@pytest.mark.slow  # the metric's true weights
def test_a_real_point_beats_its_control(tmp_path: Path) -> None:
    settings = VisibleSettings(attack="idlg", data="mnist", images=2, iterations=150)
    point = Point("mnist", "idlg", "mask-aware", 0.75)
    lpips = Lpips(load_lpips().folder)
    found = visible.measured(point, settings, lpips, lambda share: None)
    assert found["LPIPS"]["mean"] < found["control LPIPS"]["mean"] - 0.2
    assert found["below control"]["mean"] == pytest.approx(
        found["control LPIPS"]["mean"] - found["LPIPS"]["mean"]
    )
    assert np.isfinite(found["PSNR"]["mean"])


@pytest.mark.parametrize(
    ("given", "what"),
    [({"data": "imdb"}, "data is 'imdb'"), ({"attack": "x"}, "attack is 'x'"),
     ({"images": 1}, "images is 1; expected at least 2")],
)  # fmt: skip
def test_what_there_is_not_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidSetting, match=what):
        VisibleSettings(**given)
