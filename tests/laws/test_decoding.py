"""Decoders are fed what no client sends: each refuses it and says what it expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eris.core.compress import (
    QSGD,
    Encoded,
    Encoding,
    Natural,
    Quantiser,
    RandK,
    RandP,
    decode_values,
    encode_values,
)
from eris.core.errors import MalformedMessage
from eris.core.streams import Stream
from support.compressors import ENROLLED, SIZE, VECTORS, complaint

QUANTISERS = [
    pytest.param(entry.compressor, entry.sent, id=name)
    for name, entry in ENROLLED.items()
    if not isinstance(entry.compressor, (RandP, RandK))
]
every_quantiser = pytest.mark.parametrize(("compressor", "sent"), QUANTISERS)


@every_quantiser
def test_decoders_refuse_what_no_client_sends(
    compressor: Quantiser, sent: Callable[[int], int]
) -> None:
    good = compressor.encode(VECTORS["mixed"], Stream(1, "bad"))

    def field(**changes: object) -> str:
        return complaint(lambda: compressor.decode(replace(good, **changes), SIZE))  # type: ignore[arg-type]

    for other in Encoding:
        if other != compressor.encoding:
            assert field(encoding=other) == "payload.encoding"
    for count in (0, SIZE - 1, SIZE + 1, 2**62, -1):
        assert field(count=count) == "payload.count"
    for data in (b"", good.data[:-1], good.data + b"\0", good.data * 2):
        assert field(data=data) == "payload.data"
    for parameter in (math.nan, math.inf, -math.inf, -1.0, 3.5e38, 1e300):
        assert field(parameter=parameter) == "payload.parameter"
    for size in (SIZE - 1, SIZE + 8):
        with pytest.raises(MalformedMessage, match=f"payload.count: is {SIZE}; expected {size}"):
            compressor.decode(good, size)
    # Every byte string of the right length is either decoded to finite values or refused.
    refused = set()
    for seed in range(20):
        noise = Stream(seed, "noise").words(0, sent(SIZE)).astype(np.uint8).tobytes()
        try:
            decoded = compressor.decode(replace(good, data=noise), SIZE)
        except MalformedMessage as refusal:
            refused.add(refusal.field)
        else:
            assert np.isfinite(decoded).all()
    assert refused <= {"payload.data"}


def test_the_refusal_says_what_was_expected() -> None:
    encoded = encode_values(np.ones(3, np.float32))
    with pytest.raises(MalformedMessage, match=r"payload.count: is 3; expected 4 values"):
        decode_values(encoded, Encoding.DENSE, 4)
    with pytest.raises(MalformedMessage, match=r"payload.encoding: is .*DENSE.*uses .*KEPT"):
        decode_values(encoded, Encoding.KEPT, 3)
    with pytest.raises(MalformedMessage, match=r"payload.data: has 11 bytes; expected 12"):
        decode_values(replace(encoded, data=encoded.data[:-1]), Encoding.DENSE, 3)


def test_codes_beyond_the_last_level_are_refused() -> None:
    for code in range(16):
        encoded = Encoded(Encoding.QSGD, 1, bytes([code]), 1.0)
        if code <= 8:
            assert QSGD(4).decode(encoded, 1).tolist() == [(code - 4) / 4]
        else:
            with pytest.raises(MalformedMessage, match=f"payload.data: holds code {code} above 8"):
                QSGD(4).decode(encoded, 1)


def test_natural_refuses_exponents_of_nothing() -> None:
    for code in (0xFF, 0x1FF):
        encoded = Encoded(Encoding.NATURAL, 1, code.to_bytes(2, "little"))
        with pytest.raises(MalformedMessage, match=r"payload.data: holds an exponent"):
            Natural().decode(encoded, 1)
