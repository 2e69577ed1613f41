"""What counts as an update: what is cast, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eris.core.errors import InvalidSetting
from eris.training.trainer import LocalUpdate, as_update

N = 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones(N, np.float32), ""),
        (np.ones(N, np.float64), "float64"),
        (np.ones(N, np.float16), "float16"),
        (np.ones(N, np.int64), "int64"),
        (np.ones(N, np.uint8), "uint8"),
        (np.ones(N, bool), "bool"),
        ([1.0, 1.0, 1.0], "float64"),
    ],
)
def test_numbers_of_other_kinds_are_cast_and_that_is_told(given: Any, told: str) -> None:
    notices: list[str] = []
    returned: tuple[object, ...] = ((given, 5, {}), (given, 5), LocalUpdate(given, 5))
    for made in returned:
        update = as_update(made, "anna", N, notices.append)
        assert update.vector.dtype == np.float32
        assert update.vector.tolist() == [1.0] * N
    expected = f"update of anna is {told}; it is cast to float32"
    assert notices == ([expected] * 3 if told else [])


def test_a_float32_update_is_not_copied() -> None:
    given = np.ones(N, np.float32)
    assert as_update((given, 1), "anna", N).vector is given


def test_what_is_beyond_float32_is_infinite_and_not_hidden() -> None:
    assert np.isinf(as_update((np.full(N, 1e300), 1), "anna", N).vector).all()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "what update() of anna returned is 'NoneType'"),
        (np.ones(N, np.float32), "what update() of anna returned is 'ndarray'"),
        (("text", 1), "update of anna is 'str'; expected 3 float32 values"),
        ((None, 1), "update of anna is 'NoneType'; expected 3 float32 values"),
        ((np.ones(N, complex), 1), "update of anna is 'ndarray'"),
        (([[1.0], [1.0, 2.0]], 1), "update of anna is 'list"),
        ((np.ones(N + 1), 1), "'float32 array of shape (4,)'; expected 3 float32 values"),
        ((np.ones((1, N), np.float32), 1), "array of shape (1, 3)"),
        ((np.full(N, 2**24 + 1), 1), "int64 values that float32 does not hold"),
        ((np.ones(N, np.float32), -1), "samples of anna is -1; expected a whole number from 1"),
        ((np.ones(N, np.float32), 0), "samples of anna is 0"),
        ((np.ones(N, np.float32), 1.5), "samples of anna is 1.5"),
        ((np.ones(N, np.float32), None), "samples of anna is None"),
        ((np.ones(N, np.float32), "5"), "samples of anna is '5'"),
        ((np.ones(N, np.float32), float("nan")), "samples of anna is nan"),
        ((np.ones(N, np.float32), float("inf")), "samples of anna is inf"),
    ],
)
def test_what_is_no_update_is_refused_in_words(made: object, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        as_update(made, "anna", N)
    assert says in str(refused.value)
