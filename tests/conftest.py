"""Failures in shared checks show their values, as in tests."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("support", "eris.testing")
