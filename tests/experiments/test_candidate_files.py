"""A user's own candidates: read as the model takes them, or refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eris.core.errors import InvalidSetting
from eris.experiments.audits import candidate_files
from eris.experiments.audits.candidate_files import candidates_of
from support import audits

N = 12
GOOD: dict[str, Any] = {
    "inputs": np.zeros((N, 1, 8, 8), np.float64),
    "targets": np.arange(N, dtype=np.uint8) % 10,
    "client": np.arange(N) % 3,
    "included": np.arange(N) < 5,
}


def saved(path: Path, **changes: Any) -> Path:
    arrays = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    np.savez(path, **arrays)
    return path


def test_candidates_are_read_as_the_model_takes_them(tmp_path: Path) -> None:
    _, transcript = audits.recorded("dsc")
    names = np.array([f"client-{number}" for number in GOOD["client"]])
    asked = candidates_of(saved(tmp_path / "c.npz", client=names), transcript)
    some = asked.candidates
    assert asked.answered
    assert (some.inputs.dtype, some.targets.dtype) == (torch.float32, torch.int64)
    assert some.client.tolist() == GOOD["client"].tolist()
    assert some.included.tolist() == GOOD["included"].tolist()
    assert not some.coins
    assert candidates_of(saved(tmp_path / "f.npz", coins=True), transcript).candidates.coins
    whole = candidates_of(saved(tmp_path / "t.npz", inputs=np.ones((N, 7), np.int32)), transcript)
    assert whole.candidates.inputs.dtype == torch.int64


def test_a_truth_that_is_not_known_is_nobodys(tmp_path: Path) -> None:
    _, transcript = audits.recorded("dsc")
    asked = candidates_of(saved(tmp_path / "c.npz", included=None, coins=True), transcript)
    assert not asked.answered
    assert not asked.candidates.coins
    assert not asked.candidates.included.any()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"targets": None}, "targets in .* is None; expected an .npz file with `inputs`"),
    ({"includes": GOOD["included"]}, "array in .* is 'includes'; .*did you mean 'included'"),
    ({"targets": np.zeros(5, np.int64)}, "targets in .* is '5 of them'; expected 12"),
    ({"client": np.zeros(5, np.int64)}, "client in .* is '5 of them'; expected 12"),
    ({"client": np.full(N, 99)}, r"client in .* is 99; expected a client: 0 \(client-0\)"),
    ({"client": np.full(N, "client0")}, "did you mean 'client-0'"),
    ({"client": np.zeros(N)}, "client in .* is 'float64"),
    ({"client": np.zeros((N, 1), np.int64)}, r"of shape \(12, 1\)"),
    ({"included": np.arange(N)}, "included in .* is 'int64 of shape"),
    ({"included": np.ones(N, np.bool_)}, "'12 of 12 true'; expected some of both"),
    ({"coins": np.ones(N, np.bool_)}, "coins in .* expected one truth value"),
    ({"inputs": np.full((N, 2), np.nan)}, "inputs in .* is 'not finite'"),
    ({"inputs": np.full((N, 2), "a")}, "inputs in .* expected numbers"),
    ({"inputs": np.array([{"a": 1}] * N)}, "Object arrays cannot be loaded"),
    ({"inputs": np.zeros((2, 3)), "targets": np.zeros(2), "client": np.zeros(2, int)},
     "is 2; expected 3 to 100,000"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "says"), BAD, ids=[says for _, says in BAD])
def test_candidates_that_do_not_fit_are_refused(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    _, transcript = audits.recorded("dsc")
    with pytest.raises(InvalidSetting, match=says):
        candidates_of(saved(tmp_path / "c.npz", **changes), transcript)


def test_files_that_are_none_or_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, transcript = audits.recorded("dsc")
    (tmp_path / "junk.npz").write_bytes(b"PK junk")
    np.save(tmp_path / "one.npy", np.zeros(3))
    whole = saved(tmp_path / "good.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-40])
    for name in ("junk.npz", "one.npy", "cut.npz", "absent.npz"):
        with pytest.raises(InvalidSetting, match=r"--candidates is .*expected an .npz file"):
            candidates_of(tmp_path / name, transcript)
    monkeypatch.setattr(candidate_files, "MOST_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", **GOOD)
    with pytest.raises(InvalidSetting, match="bytes'; expected at most"):
        candidates_of(tmp_path / "bomb.npz", transcript)
