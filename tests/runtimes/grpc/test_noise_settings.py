"""Shared noise in a node's settings: what is agreed, what is usual, and what is refused and how."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eris.core.errors import InvalidSetting, MissingExtra
from eris.protocol.authority.charter import differences
from eris.protocol.secure.noise_terms import SharedNoise
from eris.runtimes.grpc.settings import NodeSettings
from support.node_files import load

NOISE = 'secure_sums = "2 of 3"\nepsilon = 8\nclip = 0.5\nmost_samples = 64'
DATA = 'data = "ward-3"'


def members(count: int) -> str:
    return f"host_directory = true\nstart_with = {count}"


def settings(folder: Path, more: str = "", count: int = 50, **tables: str) -> NodeSettings:
    lines = {"privacy": DATA, "membership": members(count), "federation": f"+{NOISE}\n{more}"}
    return load(folder, **(lines | tables))


def test_what_is_agreed_and_what_follows(tmp_path: Path) -> None:
    made = settings(tmp_path)
    agreed = made.agreement(1000)
    planned = SharedNoise.planned("sample", 8, clip=0.5, rounds=20, clients=50, samples=64,
                                  min_included=45, colluders=1)  # fmt: skip
    assert agreed.noise == planned
    assert (agreed.min_included, agreed.quorum, agreed.non_finite) == (45, 45, "zero")
    assert made.privacy.ledger == tmp_path / "privacy", "beside the node's state, not in it"
    whole = settings(tmp_path, 'protects = "client"\nmost_clients = 60').agreement(1000).noise
    assert whole is not None
    assert (whole.protects, whole.clients, whole.sensitivity) == ("client", 60, 0.5)
    assert settings(tmp_path, count=5).min_included == 5


def test_numbers_of_the_noise_are_part_of_the_agreement(tmp_path: Path) -> None:
    """Written down they are taken as they are, so that no member computes another."""
    plain = settings(tmp_path).agreement(1000)
    assert plain.noise is not None
    larger = (2 * plain.noise.std).hex()
    told = settings(tmp_path, f'of_a_client = "{larger}"').agreement(1000)
    assert told.noise is not None
    assert told.noise.of_a_client == larger
    assert told.fingerprint != plain.fingerprint
    again = settings(tmp_path, f'of_a_client = "{plain.noise.of_a_client}"').agreement(1000)
    assert again.fingerprint == plain.fingerprint
    assert plain.noise.of_a_client in plain.canonical


REFUSED: list[tuple[str, str, str]] = [
    ("epsilon = 8\nmost_samples = 64", DATA,
     'federation.secure_sums is \'none\'; expected some, such as "2 of 3"'),
    (f"{NOISE}\nmin_included = 3", DATA,
     "federation.min_included is 3; expected at least 4: .* know their own noise"),
    (NOISE, "", "privacy.data is not set; expected a name for this node's data, such as ward-3"),
    (NOISE, 'data = "../ward"', "privacy.data is '../ward'; expected a name of letters"),
    ('secure_sums = "2 of 3"\nepsilon = 8', DATA,
     "federation.most_samples is not set; expected the most samples of one client"),
    (f"{NOISE}\nkept_fraction = 0.1", DATA,
     "federation.shift is True; expected False with noise per sample"),
    (f'{NOISE}\nof_a_client = "0x1p-3"', DATA, "federation.of_a_client is 0.125; expected at le"),
    (f'{NOISE}\nsigma = "seven"', DATA, "federation.sigma is 'seven'; expected a number above 0"),
    (f"{NOISE}\nmost_clients = 10", DATA,
     "federation.most_clients is 10; expected at least 50, membership.start_with"),
    ('secure_sums = "2 of 3"\nepsilon = 8\nclip = 1e-6\nmost_samples = 10_000_000_000\n'
     "ring_bytes = 5\nvalue_range = 0.001", DATA,
     "noise of a client in units of the grid is .* too coarse for this noise; raise ring_bytes"),
    (NOISE.replace("8", "0"), DATA, "federation.epsilon is 0.0; expected a number above 0"),
    (f"{NOISE}\ndelta = 2", DATA, "federation.delta is 2.0; expected a number in"),
    ("sigma = \"0x1p+3\"", DATA, "federation.sigma is '0x1p[+]3'; expected nothing without eps"),
    (f'{NOISE}\nprotects = "both"', DATA, "federation.protects is 'both'; expected one of"),
    ("sampling_rate = 0.5", DATA, "federation.sampling_rate is 0.5; expected 1 without epsilon"),
    (f"{NOISE}\nsampling_rate = 0", DATA, "federation.sampling_rate is 0.0; expected a number in"),
    (f'{NOISE}\nsampling_rate = 0.5\nprotects = "client"', DATA,
     "federation.sampling_rate is 0.5; expected 1 where whole clients are protected"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "privacy", "why"), REFUSED)
def test_what_cannot_be_promised_is_refused_in_a_line(
    tmp_path: Path, lines: str, privacy: str, why: str
) -> None:
    with pytest.raises(InvalidSetting, match=why) as refused:
        load(tmp_path, federation="+" + lines, privacy=privacy, membership=members(50))
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "node.toml") in str(refused.value)


def test_secret_batches_are_planned_by_all_members_alike(tmp_path: Path) -> None:
    plain = settings(tmp_path).agreement(1000)
    agreed = settings(tmp_path, "sampling_rate = 0.25").agreement(1000)
    planned = SharedNoise.planned("sample", 8, clip=0.5, rounds=20, clients=50, samples=64,
                                  min_included=45, colluders=1, sampling_rate=0.25)  # fmt: skip
    assert agreed.noise == planned
    assert plain.noise is not None
    assert planned.std < plain.noise.std, "coins hide besides"
    assert agreed.fingerprint != plain.fingerprint
    told = settings(tmp_path, f'sampling_rate = 0.25\nsigma = "{plain.noise.sigma}"\n'
                              f'of_a_client = "{plain.noise.of_a_client}"')  # fmt: skip
    assert told.agreement(1000).fingerprint not in (plain.fingerprint, agreed.fingerprint)


@pytest.mark.parametrize("written", ["", '\nsigma = "0x1p+5"\nof_a_client = "0x1p+5"'])
def test_batches_without_what_accounts_for_them_are_refused_when_settings_are_read(
    tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the noise is written down: what rounds cost must be computed all the same."""
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    settings(tmp_path)
    with pytest.raises(MissingExtra) as missing:
        settings(tmp_path, f"sampling_rate = 0.25{written}")
    assert str(missing.value) == (
        "not installed: dp-accounting, which federation.sampling_rate needs; "
        "run `pip install 'eris-fl[audit]'`"
    )


def test_a_member_without_data_needs_no_name_for_it(tmp_path: Path) -> None:
    made = settings(tmp_path, privacy="", node="+client = false")
    assert made.agreement(1000).noise is not None


def test_differences_are_told_in_a_line(tmp_path: Path) -> None:
    def charter(lines: str) -> str:
        tables = {"privacy": DATA, "membership": members(50)}
        made = load(tmp_path, federation=f'+secure_sums = "2 of 3"\n{lines}', **tables)
        return made.charter(made.agreement(1000))

    noise = "epsilon = 8\nmost_samples = 64\n"
    assert differences(charter(""), charter(noise)) == [
        "federation.epsilon is not set here, 8 in the federation"
    ]
    assert differences(charter(noise + "clip = 0.5"), charter(noise)) == [
        "federation.clip is 0.5 here, 1 in the federation"
    ]
    assert differences(charter(noise + "sampling_rate = 0.25"), charter(noise)) == [
        "federation.sampling_rate is 0.25 here, 1 in the federation"
    ]
    told = differences(charter(noise), charter(noise.replace("64", "65") + "min_included = 46"))
    assert told == [
        "federation.min_included is 45 here, 46 in the federation",
        "federation.most_samples is 64 here, 65 in the federation",
        "federation.quorum is 45 here, 46 in the federation",
    ]
    sigma = charter(noise + 'sigma = "0x1p+30"')
    assert [line.split(" is ")[0] for line in differences(charter(noise), sigma)] == [
        "federation.sigma"
    ]


def test_budgets_are_the_operators_or_the_charters(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"privacy.epsilon_client is 0.0; expected a number"):
        settings(tmp_path, privacy=f"{DATA}\nepsilon_client = 0")
