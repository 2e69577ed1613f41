"""A user's own candidates for an audit, from an .npz file.

The file is read with limits and without pickle.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from eris.audit.candidates import Candidates
from eris.audit.statistics import FEWEST
from eris.core.errors import InvalidSetting, did_you_mean, one_of
from eris.core.vectors import Indices
from eris.protocol.transcript import Transcript

MOST_CANDIDATES = 100_000
MOST_BYTES = 2 << 30
"""Of a candidate file's arrays, unpacked."""

ARRAYS = ("inputs", "targets", "client")
OPTIONAL = ("included", "coins")
IN_A_FILE = (
    "an .npz file with `inputs`, `targets` and `client` (a member's number or name for each), and "
    "if you know it `included` (which were trained on) and `coins` (true if fair coins decided so)"
)


@dataclass(frozen=True, eq=False)
class Asked:
    """Candidates, and whether the truth about them is known."""

    candidates: Candidates
    answered: bool


def candidates_of(path: Path, transcript: Transcript) -> Asked:
    """Read a candidate file; where it does not tell the truth there will be scores alone."""
    arrays = _arrays(path)
    inputs, targets = (_numbers(path, name, arrays[name]) for name in ("inputs", "targets"))
    count = len(inputs)
    if not FEWEST <= count <= MOST_CANDIDATES:
        expected = f"{FEWEST} to {MOST_CANDIDATES:,}: a score means something beside others only"
        raise InvalidSetting(f"candidates in {path}", count, expected)
    client = _clients(path, arrays["client"], transcript)
    for name, length in (("targets", len(targets)), ("client", len(client))):
        if length != count:
            expected = f"{count}, one for each of the inputs"
            raise InvalidSetting(f"{name} in {path}", f"{length} of them", expected)
    if "included" not in arrays:
        unknown = np.zeros(count, np.bool_)
        return Asked(Candidates(inputs, targets, client, unknown, coins=False), False)
    truth = _truth(path, arrays["included"], count)
    coins = arrays.get("coins", np.array(False))
    if coins.dtype != np.bool_ or coins.shape != ():
        found = f"{coins.dtype} of shape {coins.shape}"
        raise InvalidSetting(f"coins in {path}", found, "one truth value")
    return Asked(Candidates(inputs, targets, client, truth, bool(coins)), True)


def _truth(path: Path, truth: NDArray[Any], count: int) -> NDArray[np.bool_]:
    if truth.dtype != np.bool_ or truth.shape != (count,):
        found = f"{truth.dtype} of shape {truth.shape}"
        raise InvalidSetting(f"included in {path}", found, f"{count} truth values")
    if truth.all() or not truth.any():
        found = f"{int(truth.sum())} of {count} true"
        expected = "some of both, or leave `included` out for scores alone"
        raise InvalidSetting(f"included in {path}", found, expected)
    return truth


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:
            expected = f"at most {MOST_BYTES >> 30} GiB of arrays"
            raise InvalidSetting("--candidates", f"{path}, {size:,} bytes", expected)
        with np.load(path, allow_pickle=False) as file:
            known = (*ARRAYS, *OPTIONAL)
            for name in file.files:
                if name not in known:
                    expected = one_of(known, name)
                    raise InvalidSetting(f"array in {path}", name, expected)
            for name in ARRAYS:
                if name not in file.files:
                    raise InvalidSetting(f"{name} in {path}", None, IN_A_FILE)
            return {name: file[name] for name in file.files}
    except InvalidSetting:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as broken:
        raise InvalidSetting("--candidates", str(path), f"{IN_A_FILE} ({broken})") from broken


def _numbers(path: Path, name: str, array: NDArray[Any]) -> torch.Tensor:
    """Floats as float32, whole numbers (tokens, classes) as int64."""
    kind = array.dtype.kind
    if kind not in "fiu" or array.ndim < 1:
        found = f"{array.dtype} of shape {array.shape}"
        raise InvalidSetting(f"{name} in {path}", found, "numbers, one entry a candidate")
    if kind == "f" and not np.isfinite(array).all():
        raise InvalidSetting(f"{name} in {path}", "not finite", "finite numbers")
    return torch.from_numpy(array.astype(np.float32 if kind == "f" else np.int64))


def _clients(path: Path, array: NDArray[Any], transcript: Transcript) -> Indices:
    """Numbers of clients, also where they are given by name."""
    names = transcript.membership.members
    views = [transcript.membership, *transcript.epochs.values()]
    clients = sorted({client for view in views for client in view.clients})
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        found = f"{array.dtype} of shape {array.shape}"
        raise InvalidSetting(f"client in {path}", found, "a number or a name for each candidate")
    number = {names[client]: client for client in clients}
    known = number if array.dtype.kind == "U" else {client: client for client in clients}
    for value in array.tolist():
        if value not in known:
            hint = did_you_mean(value, number) if isinstance(value, str) else ""
            some = ", ".join(f"{client} ({names[client]})" for client in clients[:8])
            more = ", …" if len(clients) > 8 else ""
            raise InvalidSetting(f"client in {path}", value, f"a client: {some}{more}{hint}")
    return np.array([known[value] for value in array.tolist()], np.int64)
