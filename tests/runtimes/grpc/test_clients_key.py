"""The clients' common key of SEFL: a file for clients alone, and the one that was agreed on."""

from __future__ import annotations

from pathlib import Path

import pytest

from eris.core.errors import ErisError, InvalidSetting
from eris.protocol.schemes import Dense, EncryptedEntries
from eris.runtimes.grpc import clients_key
from eris.runtimes.grpc.clients_key import drawn, of_node, public_key, write
from eris.runtimes.grpc.settings import NodeSettings
from support.node_files import load

PAIR, OTHER = drawn(256), drawn(256)
SCHEME = EncryptedEntries(key_bits=256, public_key=public_key(PAIR))
TLS = '+clients_key = "clients.key"'


def node(folder: Path, *, server: bool = False, keyed: bool = True) -> NodeSettings:
    options = f'{{ key_bits = 256, public_key = "{public_key(PAIR)}" }}'
    role = "+client = false\nmax_share = 1.0" if server else "+aggregator = false"
    method = f'+method = "sefl"\nmethod_options = {options}'
    tls = TLS if keyed else "+"
    return load(folder, federation=method, node=role, tls=tls)


def test_a_key_comes_back_from_its_file_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "clients.key"
    write(path, PAIR)
    assert path.stat().st_mode & 0o777 == 0o600
    assert clients_key.load(path) == PAIR
    assert of_node(node(tmp_path), SCHEME) == PAIR
    with pytest.raises(ErisError, match="File exists"):
        write(path, OTHER)
    path.chmod(0o640)
    with pytest.raises(ErisError, match=r"open to other users \(mode 640\)"):
        clients_key.load(path)


def test_who_should_have_no_key_and_who_has_another_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "clients.key", OTHER)
    with pytest.raises(InvalidSetting, match="a server that has the clients' key reads every"):
        of_node(node(tmp_path, server=True), SCHEME)
    assert of_node(node(tmp_path, server=True, keyed=False), SCHEME) is None
    with pytest.raises(InvalidSetting, match=r"tls.clients_key is .*expected the clients' common"):
        of_node(node(tmp_path, keyed=False), SCHEME)
    with pytest.raises(InvalidSetting, match=r"public_key is .*, the public half of"):
        of_node(node(tmp_path), SCHEME)
    with pytest.raises(InvalidSetting, match="it is of method sefl alone"):
        of_node(node(tmp_path), Dense())


@pytest.mark.parametrize(
    "text", ["", "{}", '{"paillier": ["f", "d"]}', '{"paillier": 5}', '{"paillier": ["zz", "d"]}']
)
def test_a_file_that_is_no_key_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "clients.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidSetting, match="a file that `eris ca clients-key` made") as refused:
        clients_key.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("digits", ["f" * 63, "F" * 64, "f" * 63 + "e", "7" * 64, "f" * 96])
def test_what_is_no_public_key_is_refused(digits: str) -> None:
    with pytest.raises(InvalidSetting, match=r"public_key is .*; expected an odd n of 256"):
        EncryptedEntries(key_bits=256, public_key=digits)
