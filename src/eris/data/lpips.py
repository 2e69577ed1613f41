"""The weights of LPIPS, a metric of how alike two pictures look (Zhang et al., "The unreasonable
effectiveness of deep features as a perceptual metric", 2018): AlexNet's features and the heads.

They come in a pickle, which could run anything. It is read by an unpickler that knows numpy's
arrays and refuses all else, and turned into safetensors once, when it is fetched.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray
from safetensors.numpy import save

from eris.data.cache import Location
from eris.data.idx import MalformedData
from eris.data.weights import MODEL, Weights, cached_weights, own_weights

LAYERS = 5
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    """Reads dictionaries and arrays; whatever else a pickle asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """One of four names of numpy."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            refused = f"asks for {module}.{name}; expected arrays of numpy and nothing else"
            raise MalformedData("alexnet.ckpt", refused) from None


def from_package(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The package's pickle as safetensors, in the layout of PyTorch (outputs, inputs, y, x)."""
    (pickled,) = members.values()
    try:
        tree = _ArraysOnly(io.BytesIO(pickled)).load()
        tensors = {}
        for layer in range(LAYERS):
            convolution = tree["AlexNet_0"][f"Conv_{layer}"]
            head = tree[f"NetLinLayer_{layer}"]["Conv_0"]["kernel"]
            tensors[f"features.{layer}.weight"] = _turned(convolution["kernel"])
            tensors[f"features.{layer}.bias"] = np.asarray(convolution["bias"], np.float32)
            tensors[f"heads.{layer}.weight"] = _turned(head)
    except (KeyError, TypeError, ValueError, pickle.UnpicklingError, EOFError) as broken:
        raise MalformedData("alexnet.ckpt", f"is not LPIPS on AlexNet ({broken})") from broken
    return {MODEL: save(tensors)}


def _turned(kernel: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ascontiguousarray(np.transpose(np.asarray(kernel, np.float32), (3, 2, 0, 1)))


def load_lpips(path: Location = None, *, cache: Location = None) -> Weights:
    """The folder of the weights: the user's own ``path``, else the cache, checked."""
    if path is None:
        return cached_weights("lpips", (MODEL,), cache)
    return own_weights("lpips", Path(path), (MODEL,), "a folder with LPIPS weights of this package")
