"""A node's settings: what is read, and what is refused and how."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from eris.core.combine import FixedPoint
from eris.core.compress import RandP
from eris.core.errors import InvalidSetting
from eris.core.rules import FedAdam
from eris.core.shards import RandomPlan
from eris.protocol.schemes import Masked
from eris.protocol.settings import Settings
from eris.runtimes.grpc.roster import Roster
from eris.runtimes.grpc.settings import PIECES, NodeSettings
from support.node_files import ROSTER, load, write


def refusal(folder: Path, environ: Mapping[str, str] | None = None, /, **tables: str) -> str:
    with pytest.raises(InvalidSetting) as refused:
        load(folder, environ, **tables)
    return str(refused.value)


def test_the_least_there_must_be_has_the_defaults_of_the_manual(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.node.name == "anna"
    assert settings.node.listen == "0.0.0.0:7400"
    assert (settings.node.client, settings.node.aggregator, settings.node.max_share) == (
        True, True, 0.5,
    )  # fmt: skip
    assert (settings.start_with, settings.shards, settings.quorum) == (5, 5, 3)
    assert settings.membership.lease == 10.0
    assert settings.limits.queue_bytes == 8 << 20
    assert settings.checkpoint.every_seconds == 30.0
    assert settings.observe.http == ""
    assert settings.roster is None


def test_relative_paths_begin_at_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    settings = NodeSettings.load(Path("..") / "node.toml", {})
    assert settings.tls.certificate.parent.samefile(tmp_path)
    assert settings.tls.certificate.is_absolute()
    assert settings.tls.key == Path("/keys/anna.key")
    assert settings.node.folder.name == "state"
    assert settings.node.folder.parent.samefile(tmp_path)


def test_the_quorum_is_more_than_half_and_at_least_the_fewest_included(tmp_path: Path) -> None:
    assert load(tmp_path, membership="host_directory = true\nstart_with = 10").quorum == 6
    assert load(tmp_path, federation="+min_included = 4").quorum == 4
    assert load(tmp_path, federation="+quorum = 5").quorum == 5


def test_the_agreement_has_what_the_file_says(tmp_path: Path) -> None:
    lines = """+seed = 7
shards = 4
kept_fraction = 0.05
rule = "fedadam"
rule_options = { learning_rate = 1, beta1 = 0.5 }
min_included = 2
quorum = 4
close_after = 3
catch_up_after = 5.5
retry_every = 1
history = 9
segment_size = 1000
value_range = 8"""
    agreed = load(tmp_path, federation=lines).agreement(61706, "ab" * 32)
    assert agreed == Settings(
        n=61706, plan=RandomPlan(4), rule=FedAdam(learning_rate=1.0, beta1=0.5),
        scheme=Masked(RandP(0.05)), precision=FixedPoint(value_range=8.0), segment_size=1000,
        min_included=2, quorum=4, close_after=3.0, catch_up_after=5.5, retry_every=1.0, history=9,
        seed=7, initial="ab" * 32, name="clinics",
    )  # fmt: skip
    plain = load(tmp_path).agreement(61706)
    assert plain == Settings(
        n=61706, plan=RandomPlan(5), quorum=3, history=1, name="clinics", initial="",
        segment_size=12342,
    )  # fmt: skip


def test_messages_have_about_64_kib_whatever_the_model_and_its_compression(tmp_path: Path) -> None:
    dense = load(tmp_path).agreement(10**6)
    assert dense.segment_size == 1 << 14
    kept = load(tmp_path, federation="+kept_fraction = 0.1").agreement(2 * 10**7)
    assert kept.segment_size == 10 * (1 << 14)  # kept values of 64 KiB
    few = load(tmp_path, federation="+kept_fraction = 0.02").agreement(10**8)
    assert few.segment_size == 1 << 18


def test_messages_of_large_models_are_larger_where_every_member_owns_a_shard(
    tmp_path: Path,
) -> None:
    large = load(tmp_path).agreement(10**7)
    assert large.segment_size == 10**7 // 5 // PIECES
    larger = load(tmp_path).agreement(10**8)
    assert larger.segment_size == 1 << 16
    few_own = load(tmp_path, federation="+shards = 2").agreement(10**8)
    assert few_own.segment_size == 1 << 14


def test_words_of_secure_sums_are_counted_by_their_bytes(tmp_path: Path) -> None:
    secure = '+secure_sums = "2 of 3"\nring_bytes = '
    assert load(tmp_path, federation=f"{secure}8").agreement(10**8).segment_size == 1 << 15
    narrow = load(tmp_path, federation=f"{secure}4\nvalue_range = 0.125").agreement(10**7)
    assert narrow.segment_size == 10**7 // 5 // PIECES
    wide = load(tmp_path, federation=f"{secure}8").agreement(10**7)
    assert wide.segment_size == 10**7 // 5 // PIECES // 2


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"node": '+lisen = "x"'}, r"key in \[node\] is 'lisen'; .*did you mean 'listen'"),
    ({"training": "+rounds = 3"}, r"key in \[training\] is 'rounds'; .*belongs to \[federation\]"),
    ({"observ": "record = true"}, "table is 'observ'; .*did you mean 'observe'"),
    ({"node": 'address = "a:1"'}, "node.name is not set; expected text"),
    ({"node": 'name = "Anna"'}, "node.name is 'Anna'; expected 1 to 63 characters"),
    ({"node": 'name = "anna"'}, "node.address, that of node.listen, is '0.0.0.0:7400'"),
    ({"node": 'name = "anna"\naddress = "[::]:7400"'}, "node.address is .*can dial"),
    ({"node": 'name = "anna"\naddress = "anna"'}, "node.address is 'anna'; expected host:port"),
    ({"node": '+listen = "::1:7400"'}, "node.listen is '::1:7400'; expected host:port"),
    ({"node": '+listen = "[10.0.0.1]:7400"'}, "node.listen is .*expected host:port"),
    ({"node": '+listen = "a..b:7400"'}, "node.listen is .*expected host:port"),
    ({"node": f'+listen = "{"a" * 64}:7400"'}, "node.listen is .*expected host:port"),
    ({"node": '+listen = "anna:70000"'}, "node.listen is .*a port from 1 to 65535, or 0"),
    ({"node": "+max_share = 0"}, "node.max_share is 0.0; expected a share above 0"),
    ({"node": "+max_share = 1.01"}, "node.max_share is 1.01; expected a share above 0"),
    ({"node": "+linger = -1"}, "node.linger is -1.0; expected a number above 0"),
    ({"node": '+client = "yes"'}, "node.client is 'yes'; expected true or false"),
    ({"node": "+folder = 3"}, "node.folder is 3; expected a path"),
    ({"node": '+folder = ""'}, "node.folder is ''; expected a path"),
    ({"tls": 'certificate = "a.pem"\nkey = "a.key"'}, "tls.authority is not set; expected a path"),
    ({"membership": "start_with = 3"}, r"\[membership\] is not set; expected one of directory"),
    (
        {"membership": 'host_directory = true\nroster = "r"'},
        "'host_directory and roster'; expected one of",
    ),
    ({"membership": 'directory = "b:1"\nstart_with = 3'}, "membership.directory_name is not set"),
    (
        {"membership": 'directory = "b:0"\ndirectory_name = "ben"\nstart_with = 3'},
        "membership.directory is 'b:0'; expected a port from 1 to 65535$",
    ),
    (
        {"membership": 'directory = "b:1"\ndirectory_name = "-"\nstart_with = 3'},
        "membership.directory_name is '-'; expected 1 to 63",
    ),
    ({"membership": '+directory_name = "ben"'}, "directory_name is 'ben'; expected none"),
    ({"membership": "host_directory = true"}, "membership.start_with is not set"),
    (
        {"membership": 'directory = "b:1"\ndirectory_name = "ben"'},
        "membership.start_with is not set",
    ),
    ({"membership": "+lease = 0"}, "membership.lease is 0.0; expected a number above 0"),
    ({"membership": "+lease = nan"}, "membership.lease is nan; expected a number"),
    ({"federation": 'name = "x"'}, "federation.rounds is not set; expected a whole number"),
    ({"federation": 'name = "x"\nrounds = 0'}, "federation.rounds is 0; expected 1 to"),
    ({"federation": 'name = "x"\nrounds = true'}, "federation.rounds is True; expected a whole"),
    ({"federation": 'name = "x"\nrounds = 2.0'}, "federation.rounds is 2.0; expected a whole"),
    ({"federation": 'name = ""\nrounds = 2'}, "federation.name is ''; expected 1 to 100"),
    ({"federation": "+seed = -1"}, "federation.seed is -1; expected 0 to"),
    ({"federation": "+shards = 0"}, "federation.shards is 0; expected 1 to"),
    ({"federation": "+kept_fraction = 1.5"}, "federation.kept_fraction is 1.5; expected a number"),
    ({"federation": '+rule = "fedadm"'}, "federation.rule is 'fedadm'; .*mean 'fedadam'"),
    ({"federation": '+rule = "krum"'}, "federation.rule is 'krum'; expected a coordinate-wise"),
    (
        {"federation": "+rule_options = { learning_rate = 0 }"},
        "federation.rule_options.learning_rate is 0.0; expected a positive",
    ),
    (
        {"federation": '+rule_options = { learning_rate = "x" }'},
        "federation.rule_options.learning_rate is 'x'; expected a number",
    ),
    (
        {"federation": "+rule_options = { name = 3 }"},
        "federation.rule_options is 'name'; expected one of learning_rate",
    ),
    ({"federation": "+rule_options = 3"}, "federation.rule_options is 3; expected a table"),
    ({"federation": "+min_included = 6"}, "federation.min_included is 6; expected at most 5"),
    ({"federation": "+min_included = 0"}, "federation.min_included is 0; expected at least 1"),
    ({"federation": "+quorum = 6"}, "federation.quorum is 6; expected at most 5"),
    ({"federation": "+close_after = 15"}, "federation.close_after is 15.0; expected above 0 and"),
    ({"federation": "+retry_every = 0"}, "federation.retry_every is 0.0; expected a positive"),
    ({"federation": "+history = 0"}, "federation.history is 0; expected at least 1"),
    ({"federation": "+segment_size = 0"}, "federation.segment_size is 0; expected at least 1"),
    ({"federation": "+value_range = 0"}, "federation.value_range is 0.0; expected a positive"),
    ({"training": 'trainer = "clinic"'}, "training.trainer is 'clinic'; expected module:function"),
    ({"training": '+options = "x"'}, r"training.options is 'x'; expected a table"),
    ({"limits": "queue_bytes = 0"}, "limits.queue_bytes is 0; expected at least 1"),
    ({"limits": "message_bytes = 1.5"}, "limits.message_bytes is 1.5; expected a whole number"),
    ({"checkpoint": "every_seconds = 0"}, "checkpoint.every_seconds is 0.0; expected a number"),
    ({"observe": 'http = "9464"'}, "observe.http is '9464'; expected host:port"),
    ({"observe": 'log_level = "warn"'}, "observe.log_level is 'warn'; .*did you mean 'warning'"),
    ({"observe": 'log_format = "xml"'}, "observe.log_format is 'xml'; expected one of text, json"),
]


@pytest.mark.parametrize(("tables", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_a_bad_setting_is_refused_by_file_key_and_reason(
    tmp_path: Path, tables: dict[str, str], told: str
) -> None:
    message = refusal(tmp_path, **tables)
    assert message.startswith(f"{tmp_path / 'node.toml'}: ")
    assert re.search(told, message), message


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("node = 3", encoding="utf-8")
    with pytest.raises(InvalidSetting, match=r"node is 3; expected a table: \[node\]"):
        NodeSettings.load(path, {"ERIS_NODE_NAME": "anna"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    with pytest.raises(InvalidSetting, match=rf"settings file is '{path}'.*No such file"):
        NodeSettings.load(path, {})
    path.write_text('[node]\nname = "anna"\nlisten = 0.0.0.0\n', encoding="utf-8")
    with pytest.raises(InvalidSetting, match=rf"'{path}'; expected TOML: .*line 3"):
        NodeSettings.load(path, {})
    path.write_bytes(b'[node]\nname = "\xff"\n')
    with pytest.raises(InvalidSetting, match=rf"'{path}'; expected text in UTF-8"):
        NodeSettings.load(path, {})


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environ = {
        "ERIS_NODE_NAME": "7",
        "ERIS_NODE_LISTEN": "127.0.0.1:7401",
        "ERIS_NODE_ADDRESS": '"10.0.0.7:7401"',
        "ERIS_NODE_CLIENT": "false",
        "ERIS_NODE_FOLDER": "elsewhere",
        "ERIS_FEDERATION_ROUNDS": "30",
        "ERIS_FEDERATION_RULE_OPTIONS": "{ learning_rate = 0.5 }",
        "ERIS_OBSERVE_LOG_FORMAT": "json",
        "ERIS_CHECKPOINT_EVERY_SECONDS": "5",
        "ERIS_RUNS": "is no setting of a node",
        "PATH": "/bin",
    }
    settings = load(tmp_path, environ)
    assert settings.node.name == "7"
    assert settings.node.listen == "127.0.0.1:7401"
    assert settings.address == "10.0.0.7:7401"
    assert settings.node.client is False
    assert settings.node.folder == tmp_path / "elsewhere"
    assert settings.federation.rounds == 30
    assert settings.agreement(100).rule.learning_rate == 0.5
    assert settings.observe.log_format == "json"
    assert settings.checkpoint.every_seconds == 5.0


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ERIS_NODE_LISEN", "x", "^environment variable is 'ERIS_NODE_LISEN'; .*ERIS_NODE_LISTEN"),
        ("ERIS_FEDERATION_ROUNDS", "many", "^ERIS_FEDERATION_ROUNDS is 'many'; expected a whole"),
        ("ERIS_FEDERATION_HISTORY", "0", "^ERIS_FEDERATION_HISTORY is 0; expected at least 1"),
        ("ERIS_FEDERATION_SEED", "1\nb = 2", "^ERIS_FEDERATION_SEED is .*expected a whole number"),
        ("ERIS_NODE_ADDRESS", "0.0.0.0:7400", "^ERIS_NODE_ADDRESS is .*can dial"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(
    tmp_path: Path, name: str, value: str, told: str
) -> None:
    assert re.search(told, refusal(tmp_path, {name: value}))


def test_port_0_becomes_the_port_that_was_bound(tmp_path: Path) -> None:
    settings = load(tmp_path, node='name = "anna"\nlisten = "[::1]:0"')
    assert settings.reachable(45678) == "[::1]:45678"
    assert load(tmp_path).reachable(45678) == "anna.example.org:7400"


# -- rosters ----------------------------------------------------------------------------------


def with_roster(folder: Path, text: str = ROSTER, **tables: str) -> NodeSettings:
    (folder / "roster.toml").write_text(text, encoding="utf-8")
    plain = {"node": 'name = "ben"', "membership": 'roster = "roster.toml"'}
    return load(folder, **plain | tables)


def test_a_roster_gives_members_address_and_roles(tmp_path: Path) -> None:
    settings = with_roster(tmp_path)
    assert settings.roster is not None
    assert [member.name for member in settings.roster.members] == ["anna", "ben", "cleo"]
    assert settings.address == "[2001:db8::2]:7400"
    assert (settings.node.client, settings.node.aggregator) == (True, False)
    assert (settings.start_with, settings.shards, settings.quorum) == (3, 3, 3)


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ('name = "bena"', "node.name is 'bena'; .*lists \\(did you mean 'ben'"),
        ('name = "ben"\naggregator = true', "node.aggregator is True; expected False, as in the"),
        ('name = "ben"\naddress = "b:1"', "node.address is 'b:1'; expected '\\[2001:db8::2\\]"),
    ],
)
def test_a_node_that_contradicts_its_roster_is_refused(
    tmp_path: Path, node: str, told: str
) -> None:
    with pytest.raises(InvalidSetting, match=rf"^{tmp_path}/node.toml: {told}"):
        with_roster(tmp_path, node=node)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "member is not set; expected one"),
        ("member = 3", "member is 3; expected one"),
        ("member = [3]", "member is 3; expected a table"),
        ("[[members]]", "key is 'members'; .*did you mean 'member'"),
        (ROSTER + 'adress = "x"', "key in \\[member\\] is 'adress'; .*did you mean 'address'"),
        (ROSTER.replace("cleo", "anna"), "member.name is 'anna'; expected every name once"),
        (ROSTER.replace("cleo.example.org", "10.0.0.1"), "expected every address once"),
        (ROSTER.replace("cleo.example.org", "0.0.0.0"), "address of cleo is .*can dial"),
        (ROSTER.replace("cleo.example.org:7400", "cleo"), "address of cleo is 'cleo'; expected"),
        ('[[member]]\nname = "a"\naddress = "a:1"\nclient = false', "member.client is False"),
        ('[[member]]\nname = "a"\naddress = "a:1"\naggregator = false', "member.aggregator is"),
    ],
)
def test_a_bad_roster_is_refused_by_its_file(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidSetting, match=rf"^{path}: {told}|^{path}: .*{told}"):
        Roster.load(path)


def test_a_roster_too_small_for_the_agreement_is_refused(tmp_path: Path) -> None:
    few = ROSTER.replace("aggregator = false", "client = false")
    with pytest.raises(InvalidSetting, match="min_included is 3; expected at most 2, the clients"):
        with_roster(tmp_path, few)
    more = {"membership": 'roster = "roster.toml"\nstart_with = 4'}
    with pytest.raises(InvalidSetting, match="start_with is 4; expected at most 3, the members"):
        with_roster(tmp_path, **more)


@pytest.mark.parametrize(
    ("federation", "node", "said"),
    [
        ('method = "fedag"', "", "federation.method is 'fedag'; expected one of .*mean 'fedavg'"),
        ('method = "sefl"', "", "federation.method is 'sefl'; expected another one where "
         "members may fail: its clients have a private key in common"),
        ('method = "fedavg-wc"\nmethod_options = { clutsers = 16 }', "aggregator = false",
         "setting of fedavg-wc is 'clutsers'; expected one of .*mean 'clusters'"),
        ('method = "fedavg-wc"\nmethod_options = { clusters = 1 }', "aggregator = false",
         "federation.method_options.clusters is 1; expected 2 to"),
        ('method = "fedavg"\nkept_fraction = 0.1', "aggregator = false",
         "federation.kept_fraction is 0.1; expected nothing beside method = 'fedavg'"),
        ("method_options = { kept_fraction = 0.1 }", "",
         "federation.method_options.kept_fraction is 0.1; expected nothing beside eris"),
        ('method = "fedavg"', "", "node.client and node.aggregator is 'true'; expected one of the"),
        ('method = "fedavg"', "client = false", "node.max_share is 0.5; expected 1: the aggreg"),
        ('method = "enccluster"\nmethod_options = { colluders = 3 }', "aggregator = false",
         "eligible clients is 4; expected at least 5: 3 colluders must leave two honest clients"),
        ('method = "fedavg"\nmin_included = 5', "aggregator = false",
         "federation.min_included is 5; expected at most 4"),
    ],
)  # fmt: skip
def test_a_method_that_nodes_cannot_carry_as_it_is_said_is_refused_in_one_line(
    tmp_path: Path, federation: str, node: str, said: str
) -> None:
    with pytest.raises(InvalidSetting, match=said) as refused:
        load(tmp_path, federation="+" + federation, node="+" + node)
    assert "\n" not in str(refused.value)


def test_a_roster_of_a_method_with_a_server_has_one_aggregator(tmp_path: Path) -> None:
    (tmp_path / "roster.toml").write_text(ROSTER, encoding="utf-8")
    tables = {"membership": 'roster = "roster.toml"', "node": 'name = "ben"'}
    few = '+method = "fedavg"\nmin_included = 1\nquorum = 1'
    with pytest.raises(InvalidSetting, match=r"member.aggregator is 'true for 2'; expected true"):
        load(tmp_path, federation=few, **tables)
    served = ROSTER.replace(
        '7400"\n[[member]]\nname = "ben"', '7400"\naggregator = false\n[[member]]\nname = "ben"'
    )
    served += "client = false\n"
    (tmp_path / "roster.toml").write_text(served, encoding="utf-8")
    assert load(tmp_path, federation=few, **tables).parts.central
