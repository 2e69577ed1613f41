"""The table of defences: every line records and is seen as it should be; lines are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eris.audit.inversion import Ggl
from eris.audit.inversion.generator import PrincipalComponents
from eris.audit.inversion.matching import Matching
from eris.audit.inversion.search import Attempt, SearchBudget, Tell
from eris.core.errors import InvalidSetting
from eris.core.streams import Stream
from eris.core.vectors import Vector
from eris.experiments.audits import defences
from eris.experiments.audits.defence_lines import DEFENCES
from eris.experiments.audits.defences import DefenceSettings, line, lines, shown_as, summary
from eris.experiments.audits.defended import ClippedNoise, Defence, ImageClients, TopK, attacked
from eris.training.torch import flatten
from support.lpips import use_stand_in

COUNT = 16
PARAMETERS = 650


@dataclass(frozen=True)
class Unknown:
    """A mechanism that nobody is told of."""

    inner: Any

    def __call__(self, update: Vector, stream: Stream) -> Vector:
        made: Vector = self.inner(update, stream)
        return made


class Looking:
    """An attack that only keeps what it is shown."""

    name: ClassVar[str] = "looking"
    usual: ClassVar[SearchBudget] = SearchBudget(1, at_once=2 * COUNT)

    def __init__(self) -> None:
        self.shown: list[Matching] = []

    def labels(self, matching: Matching) -> list[Tensor]:
        return [torch.zeros(1, matching.samples, dtype=torch.int64) for _ in range(len(matching))]

    def attempt(
        self, matching: Matching, labels: Tensor | None, start: Tensor, iterations: int, tell: Tell
    ) -> Attempt:
        assert labels is not None
        self.shown.append(matching)
        return Attempt(start, labels, torch.zeros(len(start)))

    def solved(self, matching: Matching, loss: Tensor) -> Tensor:
        return torch.ones(len(loss), dtype=torch.bool)

    @property
    def true(self) -> list[tuple[Tensor, Tensor]]:
        """Values and masks of the updates, without their controls, which come behind."""
        return [(one.values[: len(one) // 2], one.seen[: len(one) // 2]) for one in self.shown]


@pytest.fixture(scope="module")
def tiny() -> ImageClients:
    drawn = Stream(0, "images").uniform(0, COUNT * 64).reshape(COUNT, 1, 8, 8)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    labels = torch.arange(COUNT) % 10
    return ImageClients(model, torch.from_numpy(drawn.astype(np.float32)), labels)


def gradient(victims: ImageClients, *places: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    chosen = list(places)
    loss = nn.functional.cross_entropy(
        victims.model(victims.images[chosen]), victims.labels[chosen]
    )
    pieces = torch.autograd.grad(loss, list(victims.model.parameters()))
    return torch.cat([piece.flatten() for piece in pieces]).numpy()


def looked(defence: Defence, victims: ImageClients) -> tuple[list[Any], Looking]:
    attack = Looking()
    shown = attacked(defence, victims, attack, "mask-aware", None, 0, lambda share: None)
    return shown, attack


SHARE = {
    **{f"ERIS, A = {a}": 1 / a for a in (2, 4, 8)},
    **{f"ERIS, A = 2, ω = {w}": 1 / 2 / (1 + w) for w in (1, 4, 9)},
    "ERIS, A = 8, ω = 9": 1 / 80,
    **{f"Shatter, random 1/{k}": 1 / k for k in (2, 4, 8, 16)},
    **{f"EL, top 1/{k}": 1 / k for k in (2, 4, 8, 16)},
    **{f"top-k, sparsity {s}": 1 - s for s in (0.9, 0.98, 0.99)},
    **{f"PriPrune, p = {p}": 1 - float(p) for p in ("1e-05", "0.001", "0.1")},
}


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.label)
def test_every_line_records_and_shows_its_share(defence: Defence, tiny: ImageClients) -> None:
    shown, attack = looked(defence, tiny)
    pictures = sum(len(one.found) for one in shown)
    expected = {"server": COUNT, "aggregator:0": COUNT - 1, "member": COUNT}.get(defence.observer)
    if defence.method == "shatter":
        assert pictures >= COUNT // 2  # of the others, those with a chunk that came
    else:
        assert pictures == (COUNT - 1 if expected is None else expected)
    share = float(np.mean([one.visible for one in shown]))
    assert share == pytest.approx(SHARE.get(defence.label, 1.0), abs=0.02)
    assert defence.partial == (defence.label in SHARE)
    assert attack.true


def test_a_server_is_sent_gradients(tiny: ImageClients) -> None:
    _, attack = looked(DEFENCES[0], tiny)
    ((values, _),) = attack.true
    found = np.stack([gradient(tiny, place) for place in range(COUNT)])
    assert np.allclose(values.numpy(), found, atol=1e-6)


def test_ggl_knows_that_updates_are_clipped(tiny: ImageClients) -> None:
    """Who takes a clipped gradient for a short one looks for another picture."""
    line_ = Defence("clipped", mechanism=ClippedNoise(0.05, 1e-4))
    prior = PrincipalComponents.of(tiny.images, COUNT - 1)
    attack, budget = Ggl(prior, divergence=0.0), SearchBudget(30)
    errors = []
    for told in (line_, replace(line_, mechanism=Unknown(line_.mechanism))):
        (shown,) = attacked(told, tiny, attack, "mask-aware", budget, 0, lambda share: None)
        errors.append(float(np.square(shown.found - shown.originals).mean()))
    assert errors[0] < 0.5 * errors[1]


def test_of_top_k_the_largest_are_seen(tiny: ImageClients) -> None:
    line_ = next(one for one in DEFENCES if one.label == "top-k, sparsity 0.9")
    _, attack = looked(line_, tiny)
    ((values, seen),) = attack.true
    for place in range(COUNT):
        sizes = np.abs(gradient(tiny, place))
        kept = np.sort(np.argsort(-sizes, kind="stable")[: round(0.1 * PARAMETERS)])
        assert np.array_equal(np.flatnonzero(seen[place].numpy()), kept)
        assert np.allclose(np.abs(values[place].numpy()[kept]), sizes[kept], atol=1e-6)


def test_a_member_is_shown_means(tiny: ImageClients) -> None:
    of_four = next(one for one in DEFENCES if one.label == "the mean of 4 clients")
    shown, attack = looked(of_four, tiny)
    assert [one.clients for one in shown] == [4] * (COUNT // 4)
    for number, (values, _) in enumerate(attack.true):
        found = gradient(tiny, *range(4 * number, 4 * number + 4))
        assert np.allclose(values[0].numpy(), found, atol=1e-6)


def test_clipping_comes_before_noise() -> None:
    update = np.full(10_000, 1.0, np.float32)  # of norm 100
    made = ClippedNoise(10, 0.01)(update, Stream(0, "mechanism"))
    assert np.linalg.norm(made) == pytest.approx(np.sqrt(10**2 + 0.1**2 * 10_000), rel=0.02)
    assert (made - 0.1).std() == pytest.approx(0.1, rel=0.05)
    short = TopK(0.25)(np.array([1, -9, 2, 3], np.float32), Stream(0, "unused"))
    assert short.tolist() == [0, -9, 0, 0]


def test_a_line_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: ImageClients
) -> None:
    settings = DefenceSettings(only="ERIS, A = 8", images=COUNT, runs=str(tmp_path))
    made: list[str] = []

    def counted(defence: Defence, *rest: Any) -> Any:
        made.append(f"{defence.label}, {rest[2]}")
        return looked(defence, tiny)[0]

    monkeypatch.setattr(defences, "attacked", counted)
    monkeypatch.setattr(defences, "victims", lambda defence, settings: tiny)
    monkeypatch.setattr(defences, "Lpips", lambda folder: None)
    use_stand_in(monkeypatch, tmp_path / "lpips", defences)
    monkeypatch.setattr(defences, "line", _line)
    first = lines(settings)
    # Who compares what it saw comes first; the table has the modes beside each other.
    assert [text.rpartition(", ")[2] for text in made] == ["mask-aware"] * 2 + ["oblivious"] * 2
    assert [one["mode"] for one in first] == ["mask-aware", "oblivious"] * 2
    assert lines(settings) == first
    assert len(made) == 4
    table = shown_as(first, settings)
    assert table.row_count == 4


def _line(defence: Defence, mode: Any, shown: Any, lpips: Any) -> dict[str, Any]:
    """As it is, with figures that pictures of 8 × 8 do not have."""
    found = json.loads(json.dumps(line(defence, mode, shown, lpips)))
    assert set(found["found"]) == {"SNR", "PSNR"}
    for which in ("found", "control"):
        found[which] |= {name: summary([0.1, 0.3]) for name in ("LPIPS", "SSIM")}
    return found  # type: ignore[no-any-return]


def test_other_settings_are_other_lines() -> None:
    usual = DefenceSettings()
    paths = {
        settings.path(DEFENCES[0], "mask-aware")
        for settings in (usual, DefenceSettings(attack="rog"), DefenceSettings(seed=1),
                         DefenceSettings(images=60), DefenceSettings(iterations=7))
    }  # fmt: skip
    assert len(paths) == 5
    assert DefenceSettings(only="ERIS").path(DEFENCES[0], "mask-aware") in paths


@pytest.mark.parametrize(
    ("given", "what"),
    [({"attack": "cosin"}, "attack is 'cosin'"), ({"images": 3}, "images is 3; expected at least"),
     ({"only": "FedProx"}, "only is 'FedProx'; expected one of")],
)  # fmt: skip
def test_what_there_is_not_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidSetting, match=what):
        DefenceSettings(**given)


def test_an_interval_is_of_the_mean() -> None:
    values = Stream(0, "values").normal(0, 400)
    found = summary(values.tolist())
    assert found["interval"] == pytest.approx(1.96 * found["deviation"] / 20)
    assert summary([2.0])["deviation"] == 0


@pytest.mark.slow  # CIFAR-10
def test_the_victims_are_real_images_and_come_in_whole_groups() -> None:
    of_eight = next(one for one in DEFENCES if one.together == 8)
    found = defences.victims(of_eight, DefenceSettings())
    assert found.images.shape == (48, 3, 32, 32)
    assert len(flatten(found.model)) == 34_826
