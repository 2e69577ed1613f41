"""CIFAR-100: 50,000 + 10,000 coloured pictures of 32 × 32 pixels in a hundred classes.

Krizhevsky, "Learning multiple layers of features from tiny images" (2009). No package carries it:
it is read from the user's own copy of the published binary version. A row is the byte of one of 20
coarse labels, the byte of the fine label, then the red, the green and the blue plane. Labels are
the fine ones.
"""

from __future__ import annotations

from pathlib import Path

from eris.core.errors import DataUnavailable
from eris.data.cache import Location, located
from eris.data.cifar10 import labelled, read_rows
from eris.data.images import ImageData

TRAIN, TEST = "train.bin", "test.bin"
EXPECTED = f"{TRAIN} and {TEST} of the binary version of CIFAR-100"
NOT_FETCHED = (
    "cifar100 is not fetched, for no package carries it; expected your own copy as `path`, a "
    f"folder with {EXPECTED}"
)
_CLASSES = (20, 100)
_INNER = "cifar-100-binary"


def load_cifar100(path: Location = None, *, cache: Location = None) -> ImageData:
    """CIFAR-100 from the user's folder ``path`` (``train.bin`` and ``test.bin``).

    ``path`` may also be the folder that holds the unpacked ``cifar-100-binary``. A file may hold
    fewer images than the published one. There is nothing in the cache: no package carries it.
    """
    if path is None:
        raise DataUnavailable(NOT_FETCHED)
    folder = Path(path)
    if (folder / _INNER / TRAIN).is_file():
        folder = folder / _INNER
    if not (folder / TRAIN).is_file() and (folder / "train").is_file():
        raise DataUnavailable(
            f"{folder} has CIFAR-100 in its Python version, which is pickles, and nothing is ever "
            f"unpickled; expected {EXPECTED}"
        )
    missing = [file for file in (TRAIN, TEST) if not (folder / file).is_file()]
    if missing:
        raise DataUnavailable(f"{folder} has no {', '.join(missing)}; expected {EXPECTED}")
    folder, source = located("cifar100", (TRAIN, TEST), folder, cache, EXPECTED)
    train, test = (labelled([read_rows(folder / file, _CLASSES)]) for file in (TRAIN, TEST))
    return ImageData("cifar100", source, *train, *test)
