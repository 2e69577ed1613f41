"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, so that bits can be compared."""
    from eris.training.torch import single_threaded  # scikit-learn's tests need no PyTorch

    with single_threaded():
        yield
