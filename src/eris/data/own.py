"""A user's own data: an ``.npz`` file, or a function that returns the same arrays by name.

    train_inputs    (N, …)  numbers, as the model reads them
    train_targets   (N,)    whole numbers from 0: each sample's class
    test_inputs     (M, …)  the same shape of samples
    test_targets    (M,)
    train_users     (N,)    optional: whose each sample is, for the partition by-user

Bytes (uint8) are taken for pictures: divided by 255, and (N, H, W) gets a channel. Other numbers
stay as they are, in 32 bits if they are fractions and in 64 if they are whole.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eris.core.errors import InvalidSetting
from eris.data.cache import sha256_of
from eris.named import called, code_sha256, is_named, named_function

NEEDED = ("train_inputs", "train_targets", "test_inputs", "test_targets")
OPTIONAL = ("train_users",)
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class OwnData:
    """The arrays of a user's own data, checked."""

    source: str
    checksums: Mapping[str, str]
    """sha256 of the file, or of the file that the function is in."""
    train_inputs: Array
    train_targets: Array
    test_inputs: Array
    test_targets: Array
    train_users: Array | None = None


def is_own(name: str) -> bool:
    """Whether a name of data is that of a file or a function.

    >>> is_own("clinics.npz"), is_own("my_data:load"), is_own("mnist")
    (True, True, False)
    """
    return name.endswith(".npz") or is_named(name)


def load_own(name: str) -> OwnData:
    """The data in a file ``name.npz``, or from a function ``module:function`` without arguments."""
    if name.endswith(".npz"):
        arrays, source = _read(Path(name)), name
        checksums = {"file": sha256_of(Path(name))}
    else:
        arrays, source = called("data", name), f"{name}()"
        code = code_sha256(named_function("data", name))
        checksums = {} if code is None else {"code": code}
    if not isinstance(arrays, Mapping):
        expected = f"a mapping of arrays called {', '.join(NEEDED)}"
        raise InvalidSetting(f"what {source} returned", type(arrays).__name__, expected)
    return OwnData(source, checksums, **_checked(arrays, source))


def _read(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise InvalidSetting("data", str(path), "a file that is there") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as broken:
        expected = f"arrays of numbers as numpy.savez writes them ({broken})"
        raise InvalidSetting("data", str(path), expected) from None


def _checked(arrays: Mapping[str, Any], source: str) -> dict[str, Array]:
    for name in NEEDED:
        if name not in arrays:
            found = ", ".join(map(str, arrays)) or "nothing"
            raise InvalidSetting(f"arrays in {source}", found, f"{name} among them")
    for name in arrays:
        if name not in (*NEEDED, *OPTIONAL):
            known = ", ".join((*NEEDED, *OPTIONAL))
            raise InvalidSetting(f"array in {source}", name, f"one of {known}")
    given = {name: np.asarray(array) for name, array in arrays.items()}
    for part in ("train", "test"):
        _check_part(given, part, source)
    samples = [given[f"{part}_inputs"] for part in ("train", "test")]
    if samples[0].shape[1:] != samples[1].shape[1:] or samples[0].dtype != samples[1].dtype:
        found, expected = (f"{one.dtype} {one.shape[1:]}" for one in reversed(samples))
        raise InvalidSetting(f"samples of test_inputs in {source}", found, f"{expected}, as train")
    return {
        name: _readable(array) if name.endswith("_inputs") else array.astype(np.int64)
        for name, array in given.items()
    }


def _check_part(given: Mapping[str, Array], part: str, source: str) -> None:
    inputs = given[f"{part}_inputs"]
    if inputs.ndim < 2 or len(inputs) == 0 or inputs.dtype.kind not in "fiu":
        found = f"{inputs.dtype} {inputs.shape}"
        raise InvalidSetting(f"{part}_inputs in {source}", found, "numbers, one sample a row")
    if not np.isfinite(inputs).all():
        raise InvalidSetting(f"{part}_inputs in {source}", "with NaN or infinity", "finite numbers")
    for name in (f"{part}_targets", f"{part}_users"):
        if name not in given:
            continue
        array = given[name]
        if array.shape != (len(inputs),) or array.dtype.kind not in "iu" or array.min() < 0:
            found = f"{array.dtype} {array.shape}"
            if array.dtype.kind == "i" and array.size and array.min() < 0:
                found += f" with {array.min()}"
            expected = f"whole numbers from 0, ({len(inputs)},): one for each of {part}_inputs"
            raise InvalidSetting(f"{name} in {source}", found, expected)


def _readable(inputs: Array) -> Array:
    if inputs.dtype == np.uint8:
        pictures = inputs[:, None] if inputs.ndim == 3 else inputs
        return pictures.astype(np.float32) / np.float32(255)
    return inputs.astype(np.float32 if inputs.dtype.kind == "f" else np.int64)
