"""Failures in shared checks show their values, as in tests; every test has a time limit."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes is the machine's business; each test has a limit of its own.
settings.register_profile("eris", deadline=None)
settings.load_profile("eris")

pytest.register_assert_rewrite("support", "eris.testing")

from support.deadline import (  # noqa: E402
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scenes --rewrite`` writes scenes as they are now, and the docs' quotes."""
    parser.addoption("--rewrite", action="store_true", help="write scenes anew (tests/scenes)")


__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]
