"""``eris ca``: from nothing to a member's three files, and what its holder is told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eris.cli.ca import app
from eris.core.errors import InvalidSetting
from eris.runtimes.grpc.pem import BadIdentity
from eris.runtimes.grpc.tls import Identity, issue, issued


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> str:
    # Refusals are shown by `eris` itself; here they are exceptions.
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_from_nothing_to_members() -> None:
    said = run("init", "ca", "--federation", "[hospitals]")
    assert "The authority of '[hospitals]' is in ca." in said
    assert "ca.key  stays here, offline" in said
    said = run("issue", "clinic-1", "--host", "10.0.0.1", "--host", "a.example.org")
    for file in ("clinic-1.pem", "clinic-1.key", "ca.pem"):
        assert f"ca/clinic-1/{file}" in said
        assert Path("ca/clinic-1", file).is_file()
    assert "ca/ca.key goes nowhere" in said
    run("issue", "clinic-2", "--ca", "ca", "--days", "5", "--out", "elsewhere")
    made = Identity(
        Path("elsewhere/clinic-2.pem"), Path("elsewhere/clinic-2.key"), Path("ca/ca.pem")
    )
    (warning,) = made.check("clinic-2")
    assert "expires in 4 days" in warning


def test_a_renewal_says_what_to_copy_and_when_the_key_is_new() -> None:
    run("init", "ca", "--federation", "hospitals")
    run("issue", "clinic-1", "--days", "5")
    key = Path("ca/clinic-1/clinic-1.key")
    before = key.read_bytes()
    said = run("issue", "clinic-1", "--renew")
    assert "its key is the same" in said
    assert "Copy ca/clinic-1/clinic-1.pem" in said
    assert key.read_bytes() == before
    for file in Path("ca/clinic-1").iterdir():
        file.unlink()
    assert "Warning: neither clinic-1.key nor clinic-1.pem" in run("issue", "clinic-1", "--renew")


def test_show_lists_what_was_issued_last() -> None:
    run("init", "ca", "--federation", "hospitals", "--days", "1000")
    run("issue", "clinic-1", "--days", "5")
    run("issue", "clinic-2", "--days", "5", "--party", "[City] Hospital")
    run("issue", "clinic-2", "--days", "900", "--renew")
    issue(Path("ca"), "clinic-3", days=1, now=datetime.now(UTC) - timedelta(minutes=1))
    rows = {row.split()[1]: row for row in run("show", "ca").splitlines() if "clinic" in row}
    assert list(rows) == ["clinic-1", "clinic-2", "clinic-3"]
    assert "4 days, renew" in rows["clinic-1"]
    assert "899 days " in rows["clinic-2"]
    assert "[City] Hospital" in rows["clinic-2"]
    assert " its own " in rows["clinic-1"]
    assert "23 hours, renew" in rows["clinic-3"]
    key = Identity(Path("ca/clinic-2/clinic-2.pem"), Path(), Path()).fingerprint
    assert key[:16] in rows["clinic-2"]
    assert "O=hospitals" in run("show", "ca")


def test_certificates_issued_at_once_are_all_recorded() -> None:
    run("init", "ca", "--federation", "hospitals")
    names = [f"clinic-{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(partial(issue, Path("ca")), names))
    assert {each.name for each in issued(Path("ca"))} == set(names)
    assert {each.record for each in made} == set(issued(Path("ca")))


def test_refusals_reach_the_command() -> None:
    with pytest.raises(BadIdentity, match="`eris ca init ca --federation NAME`"):
        run("issue", "clinic-1")
    with pytest.raises(BadIdentity, match=r"ca has no ca\.pem"):
        run("show", "ca")
    with pytest.raises(InvalidSetting, match="days is 0"):
        run("init", "ca", "--federation", "hospitals", "--days", "0")
    assert not Path("ca").exists()
    run("init", "ca", "--federation", "hospitals")
    with pytest.raises(InvalidSetting, match="Clinic"):
        run("issue", "Clinic")


@pytest.mark.parametrize("command", [[], ["init"], ["issue"], ["show"]])
def test_help_shows_a_command_to_copy(command: list[str]) -> None:
    assert f"eris ca {(command or ['init'])[0]} " in run(*command, "--help")
