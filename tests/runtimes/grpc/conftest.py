"""What the tests of real connections share."""

from __future__ import annotations

import pytest

from eris.runtimes.grpc.tls import Identity, create_authority, issue


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    folder = tmp_path_factory.mktemp("ca")
    create_authority(folder / "ours", "test")
    create_authority(folder / "theirs", "other")
    known = {name: issue(folder / "ours", name).identity for name in ("anna", "ben", "carl")}
    return known | {"stranger": issue(folder / "theirs", "anna").identity}
