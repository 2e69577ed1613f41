"""The charter: the same for the same agreement, differences in words, sizes that follow."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from eris.core.compress import Encoded, Encoding
from eris.core.errors import InvalidSetting, TrainingWarning
from eris.protocol.authority.charter import differences
from eris.protocol.codec import encode
from eris.protocol.messages import Header, Payload, Snapshot
from eris.protocol.secure.noise_terms import SharedNoise
from eris.runtimes.grpc.sections import FederationTable
from eris.tables import settings_of, variable
from support.node_files import load


def test_members_with_the_same_settings_have_the_same_charter(tmp_path: Path) -> None:
    host = load(tmp_path, federation="+kept_fraction = 0.1\nclose_after = 3")
    joining = {
        "node": 'name = "ben"\naddress = "b:1"\nmax_share = 1',
        "membership": 'directory = "a:1"\ndirectory_name = "anna"\nstart_with = 5\nlease = 3',
        "federation": "+close_after = 3.0\nkept_fraction = 0.1\nshards = 5\nquorum = 3",
    }
    guest = load(tmp_path, **joining)
    one, other = (each.charter(each.agreement(1000, "ab")) for each in (host, guest))
    assert one == other
    assert json.dumps(json.loads(one), sort_keys=True) == one
    assert differences(one, other) == []


def test_a_share_that_may_not_train_is_said_before_training(tmp_path: Path) -> None:
    with pytest.warns(TrainingWarning, match="less than 2% of the coordinates are kept"):
        load(tmp_path, federation='+kept_fraction = 0.006\nbasis = "coordinates"').agreement(1000)


def test_differences_are_told_by_the_names_of_the_file(tmp_path: Path) -> None:
    def of(lines: str, n: int = 1000, digest: str = "aa") -> str:
        settings = load(tmp_path, federation="+" + lines)
        return settings.charter(settings.agreement(n, digest))

    assert differences(of("kept_fraction = 0.1"), of("kept_fraction = 0.05")) == [
        "federation.kept_fraction is 0.1 here, 0.05 in the federation"
    ]
    assert differences(of(""), of("kept_fraction = 0.05")) == [
        "federation.kept_fraction is not set here, 0.05 in the federation"
    ]
    assert differences(of("kept_fraction = 0.1"), of("kept_fraction = 0.006")) == [
        "federation.kept_fraction is 0.1 here, 0.006 in the federation"
    ]
    assert differences(
        of('kept_fraction = 0.02\nbasis = "rotated"'),
        of('kept_fraction = 0.02\nbasis = "coordinates"'),
    ) == ['federation.basis is "rotated" here, "coordinates" in the federation']
    assert differences(of('compressor = "qsgd:16"'), of('compressor = "natural"')) == [
        'federation.compressor is "qsgd:16" here, "natural" in the federation'
    ]
    assert differences(of('compressor = "qsgd:16"'), of("kept_fraction = 0.1")) == [
        'federation.compressor is "qsgd:16" here, not set in the federation',
        "federation.kept_fraction is not set here, 0.1 in the federation",
    ]
    few = 'kept_fraction = 0.006\nrule = "fedavgm"\nlimit = '
    assert differences(of(few + "0.3"), of(few + "0.5")) == [
        "federation.limit is 0.3 here, 0.5 in the federation"
    ]
    assert differences(of("", 61706, "aa"), of("", 44426, "bb")) == [
        "the model has 61,706 parameters here, 44,426 in the federation"
    ]
    assert differences(of("", 10, "aa"), of("", 10, "bb")) == [
        'the SHA-256 of the initial model is "aa" here, "bb" in the federation'
    ]
    adam = 'rule = "fedadam"\nshards = 3\nvalue_range = 8\nrule_options = { learning_rate = 0.1 }'
    told = differences(of(""), of(adam))
    for line in [
        'federation.rule is "fedavg" here, "fedadam" in the federation',
        "federation.shards is 5 here, 3 in the federation",
        "federation.value_range is 64 here, 8 in the federation",
        "federation.rule_options.learning_rate is 0.01 here, 0.1 in the federation",
        "federation.rule_options.beta1 is not set here, 0.9 in the federation",
    ]:
        assert line in told
    one = load(tmp_path)
    other = load(tmp_path, {"ERIS_FEDERATION_ROUNDS": "6", "ERIS_MEMBERSHIP_START_WITH": "4"})
    agreed = one.agreement(10)
    assert differences(one.charter(agreed), other.charter(agreed)) == [
        f"federation.rounds is {one.federation.rounds} here, 6 in the federation",
        "membership.start_with is 5 here, 4 in the federation",
    ]


def test_methods_are_told_apart_by_name_and_option(tmp_path: Path) -> None:
    def of(lines: str) -> str:
        settings = load(tmp_path, federation="+" + lines, node="+aggregator = false")
        return settings.charter(settings.agreement(10_000, "aa"))

    clustered = 'method = "fedavg-wc"\nmethod_options = '
    assert differences(of(clustered + "{ clusters = 16 }"), of('method = "fedavg-wc"')) == [
        "federation.method_options.clusters is 16 here, 128 in the federation"
    ]
    assert of(clustered + "{ clusters = 128 }") == of('method = "fedavg-wc"')
    assert differences(of('method = "fedavg"'), of('method = "min-leakage"')) == [
        'federation.method is "fedavg" here, "min-leakage" in the federation'
    ]
    assert differences(of(""), of(clustered + '{ coding = "huffman" }')) == [
        'federation.method is "eris" here, "fedavg-wc" in the federation'
    ]
    noisy = 'method = "fedavg-ldp"\nmethod_options = { epsilon = 4 }'
    assert differences(of(noisy), of('method = "fedavg-ldp"\nseed = 1')) == [
        "federation.method_options.epsilon is 4 here, 10.0 in the federation",
        "federation.seed is 0 here, 1 in the federation",
    ]


def test_every_agreed_setting_is_in_the_charter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {
        "name": '"x"', "rounds": "9", "seed": "1", "shards": "2", "kept_fraction": "0.5",
        "compressor": '"qsgd:16"',
        "rule": '"fednova"', "rule_options": "{ learning_rate = 0.5 }", "min_included": "2",
        "quorum": "4", "close_after": "1", "catch_up_after": "16", "retry_every": "1",
        "history": "2", "segment_size": "7", "value_range": "1", "basis": '"coordinates"',
        "limit": "0.3", "mask_groups": "2", "secure_sums": '"2 of 3"', "ring_bytes": "6",
        "colluders": "2", "epsilon": "4", "delta": "1e-6", "protects": '"client"', "clip": "2",
        "sampling_rate": "0.5", "method": '"fedavg"', "method_options": "{ clusters = 16 }",
        "most_samples": "9", "most_clients": "6", "sigma": '"0x1p+9"', "of_a_client": '"0x1p+9"',
    }  # fmt: skip
    beside = {"basis": "+kept_fraction = 0.02", "method_options": '+method = "fedavg-wc"'}
    beside["mask_groups"] = beside["basis"]
    beside["ring_bytes"] = beside["colluders"] = '+secure_sums = "2 of 3"'
    beside["limit"] = beside["basis"] + '\nrule = "fedavgm"\nlimit = 1'
    noisy = beside["colluders"] + "\nepsilon = 8\nmost_samples = 8"
    of_noise = {item.name for item in fields(SharedNoise)} - {"rounds"}
    beside |= dict.fromkeys({*of_noise, "most_samples", "most_clients"}, noisy)
    assert set(other) == {item.name for item, _ in settings_of(FederationTable)}
    for key, value in other.items():
        tables = {"federation": beside.get(key, "+"), "privacy": 'data = "ward-3"'}
        if key.startswith("method"):
            tables["node"] = "+aggregator = false"  # of one server it is a client
        if key == "mask_groups":
            tables["membership"] = "host_directory = true\nstart_with = 10"  # five in a group
        usual = load(tmp_path, **tables)
        changed = load(tmp_path, {variable("federation", key): value}, **tables)
        one, two = (each.charter(each.agreement(1000)) for each in (usual, changed))
        lines = differences(one, two)
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"federation.{key}")


@pytest.mark.parametrize(
    "theirs",
    ["", "[", "3", '"x"', "null", "[" * 100_000, '{"a":' * 5_000, "9" * 5_000, "x" * 70_000],
)
def test_a_charter_that_is_none_gives_one_line(theirs: str) -> None:
    (line,) = differences('{"n": 5}', theirs)
    assert line.startswith("the federation's charter ")
    assert len(line) < 120


def test_a_hostile_charter_gives_few_short_printable_lines() -> None:
    evil = {f"\x1b[31m\n{i}" + "k" * 400: "\x1b\n" + "v" * 400 for i in range(50)}
    lines = differences('{"n": 5}', json.dumps({"n": "many", **evil}))
    assert len(lines) == 21
    assert lines[-1] == "and 31 more differences"
    assert all(line.isprintable() and len(line) < 300 for line in lines)


@pytest.mark.parametrize("n", [100, 61_706, 5_000_000])
def test_the_largest_snapshot_fits_the_derived_limit(tmp_path: Path, n: int) -> None:
    settings = load(tmp_path, federation='+rule = "fedadam"\nkept_fraction = 0.05')
    agreed = settings.agreement(n)
    shard = -(-n // 5)
    size = min(1 << 18, shard if shard <= 1 << 14 else max(1 << 14, -(-shard // 16)))
    dense = Payload(Encoded(Encoding.DENSE, size, np.zeros(size, "<f4").tobytes(), 0.0), 0)
    header = Header(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1, 4, 2**32 - 1)
    snapshot = encode(Snapshot(header, 2**32 - 1, 2**32 - 1, dense, dense, (dense, dense)))
    assert 0 <= settings.message_bytes(agreed) - len(snapshot) < 64 << 10


def test_a_limit_below_what_the_model_needs_is_refused(tmp_path: Path) -> None:
    settings = load(tmp_path, limits="message_bytes = 100000")
    assert settings.message_bytes(settings.agreement(1000)) == 100_000
    agreed = settings.agreement(1_000_000)
    needed = load(tmp_path).message_bytes(agreed)
    told = rf"node.toml: limits.message_bytes is 100000; expected at least {needed}"
    with pytest.raises(InvalidSetting, match=told):
        settings.message_bytes(agreed)
