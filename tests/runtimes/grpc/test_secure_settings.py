"""Secure sums in a node's settings: what is agreed, what is usual, and what is refused and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eris.cli.main import app
from eris.core.errors import InvalidSetting
from eris.experiments.federations.processes import federation_values
from eris.protocol.authority.charter import differences
from eris.protocol.secure.terms import SecureSums
from eris.runtimes.grpc.settings import NodeSettings, usual_secure_sums
from support.node_files import ROSTER, load


def members(count: int) -> str:
    return f"host_directory = true\nstart_with = {count}"


def test_what_is_agreed_and_what_follows(tmp_path: Path) -> None:
    assert load(tmp_path).agreement(1000).secure is None
    assert load(tmp_path).min_included == 3
    settings = load(tmp_path, federation='+secure_sums = "2 of 3"')
    agreed = settings.agreement(1000)
    assert agreed.secure == SecureSums.parse("2 of 3")
    assert (settings.min_included, agreed.min_included, settings.quorum) == (4, 4, 4)
    lines = '+secure_sums = "3 of 4"\ncolluders = 3\nring_bytes = 6'
    settings = load(tmp_path, federation=lines, membership=members(9))
    assert settings.agreement(1000).secure == SecureSums.parse("3 of 4", 6, 3)
    assert (settings.min_included, settings.quorum) == (6, 6)
    fewest = load(tmp_path, federation='+secure_sums = "2 of 3"\nmin_included = 5')
    assert fewest.agreement(1000).min_included == 5


REFUSED: list[tuple[str, str, str]] = [
    ('secure_sums = "2 of 3"', members(3),
     r"members for secure_sums \"2 of 3\" is '3 members, 3 of them clients'; expected at least "
     "4 members and 4 clients"),
    ('secure_sums = "3 of 4"', members(4), "at least 5 members and 5 clients"),
    ('secure_sums = "2 of 3"\nmin_included = 3', members(5),
     "federation.min_included is 3; expected at least 4: the owner and 1 colluders know"),
    ('secure_sums = "2 of 3"\ncolluders = 0', members(5),
     'federation.colluders is 0; expected at least 1: "2 of 3" is made against'),
    ('secure_sums = "2 of 3"\ncolluders = 3', members(5), "5 members and 6 clients|6 clients"),
    ('secure_sums = "2 of 3"\nrule = "coordinate-median"', members(5),
     "federation.rule is .*; expected a mean, for masked sums give no single contributions"),
    ('secure_sums = "2 of 3"\nrule = "trimmed-mean"', members(5), "federation.rule is .* a mean"),
    ('secure_sums = "2 of 3"\nkept_fraction = 0.02\nmask_groups = 2', members(10),
     "rand-p or rand-k with one mask for all clients"),
    ('secure_sums = "2 of 3"\nring_bytes = 4', members(5),
     "binary places that ring_bytes = 4 leaves is '1 for value_range 64 .* at least 8"),
    ('secure_sums = "2 of 3"\nring_bytes = 7', members(5), "federation.ring_bytes is 7"),
    ('secure_sums = "1 of 3"', members(5), "federation.secure_sums is '1 of 3'; expected 2 of 3"),
    ('secure_sums = "yes"', members(5), "federation.secure_sums is 'yes'; expected 2 of 3"),
    ('secure_sums = "2 of 3"', 'roster = "roster.toml"',
     "federation.secure_sums is '2 of 3'; expected none, or a directory: keys are drawn at every"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "membership", "why"), REFUSED)
def test_what_does_not_go_together_is_refused_in_a_line(
    tmp_path: Path, lines: str, membership: str, why: str
) -> None:
    (tmp_path / "roster.toml").write_text(ROSTER, encoding="utf-8")
    node = 'name = "anna"' if "roster" in membership else "+"
    with pytest.raises(InvalidSetting, match=why) as refused:
        load(tmp_path, node=node, federation="+" + lines, membership=membership)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "node.toml") in str(refused.value)


def test_differences_are_told_in_a_line(tmp_path: Path) -> None:
    def charter(lines: str) -> str:
        settings = load(tmp_path, federation="+" + lines, membership=members(6))
        return settings.charter(settings.agreement(1000))

    assert differences(charter(""), charter('secure_sums = "2 of 3"')) == [
        'federation.secure_sums is "none" here, "2 of 3" in the federation'
    ]
    assert differences(charter('secure_sums = "3 of 4"'), charter('secure_sums = "2 of 3"')) == [
        'federation.secure_sums is "3 of 4" here, "2 of 3" in the federation'
    ]
    told = differences(
        charter('secure_sums = "2 of 3"\nring_bytes = 6\ncolluders = 2'),
        charter('secure_sums = "2 of 3"'),
    )
    assert "federation.ring_bytes is 6 here, 8 in the federation" in told
    assert "federation.colluders is 2 here, 1 in the federation" in told


def test_four_members_usually_have_them(tmp_path: Path) -> None:
    usual = [usual_secure_sums(count) for count in (0, 4, 5, 50)]
    assert usual == ["none", "none", "2 of 3", "2 of 3"]
    terms: dict[str, Any] = {
        "rounds": 1,
        "kept": 1.0,
        "learning_rate": 1.0,
        "seed": 0,
        "trainer": "a:b",
    }
    assert federation_values(5, **terms)["federation.secure_sums"] == "2 of 3"
    assert federation_values(3, **terms)["federation.secure_sums"] == "none"
    for count, words in ((5, "2 of 3"), (4, "none")):
        place = tmp_path / str(count)
        done = CliRunner().invoke(
            app, ["node", "init", "anna", "--folder", str(place), "--host-directory",
                  "--address", "anna.example.org:7400", "--start-with", str(count)],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        text = (place / "node.toml").read_text("utf-8")
        assert f'secure_sums = "{words}"' in text
        assert "an owner can read every client's values in its shards" in text.replace("\n# ", " ")
        assert NodeSettings.load(place / "node.toml", {}).federation.secure_sums == words
