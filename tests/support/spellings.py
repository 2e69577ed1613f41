"""A secret as a file might have it."""

from __future__ import annotations

import base64


def spellings(secret: bytes) -> list[bytes]:
    """Its bytes, and the ways in which they are usually written."""
    return [secret, secret.hex().encode(), base64.b64encode(secret), repr(secret)[2:-1].encode()]
