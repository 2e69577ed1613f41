"""Failures in shared checks show their values, as in tests; every test has a time limit."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("support", "eris.testing")

from support.deadline import (  # noqa: E402
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]
