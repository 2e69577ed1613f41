"""The tables of ``node.toml``: every setting of a node with its meaning and its checks.

To add a setting, add a field: it becomes a key of its table, an environment variable, a line of
the template that ``eris node init`` writes and a row of ``docs/node-settings.md``.
"""

# ruff: noqa: RUF009 (setting() describes a field)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from eris.core.errors import InvalidSetting, one_of
from eris.core.noise import secret_seed
from eris.core.rules import RULES, FedAvg, ServerRule, server_rule
from eris.methods.eris import ERIS
from eris.methods.method import Composition, GossipMethod, Method
from eris.methods.registry import METHODS, create
from eris.named import is_named
from eris.protocol.secure.charges import data_name
from eris.runtimes.grpc.addresses import LOOPBACK, dialled, endpoint
from eris.runtimes.grpc.pem import checked_name
from eris.tables import UNSET, Table, check_settings, setting

AS_IN_ERIS = (
    "kept_fraction", "compressor", "basis", "limit", "mask_groups", "ring_bytes", "colluders",
)  # fmt: skip
"""Keys of [federation] that ERIS has under the same names."""
OF_ERIS = {
    *AS_IN_ERIS, "shards", "secure_sums", "epsilon", "delta", "protects", "clip", "sampling_rate",
    "most_samples", "most_clients", "sigma", "of_a_client",
}  # fmt: skip
"""Keys of [federation] that are settings of ERIS, or of the noise in its sums."""

ABOVE_0, AT_LEAST_0, AT_LEAST_1 = "a number above 0", "at least 0", "at least 1"
FEW = "1 to 10,000"


@dataclass(frozen=True, kw_only=True)
class NodeTable(Table):
    """This node."""

    title: ClassVar[str] = "node"
    name: str = setting("The name in this node's certificate.", example="anna")
    listen: str = setting(
        "host:port to listen at; port 0: any that is free.", default="0.0.0.0:7400"
    )
    address: str | None = setting(
        "host:port that other members dial.",
        default=None, empty="that of listen", example="anna.example.org:7400",
    )  # fmt: skip
    folder: Path = setting("Folder of this node's checkpoints and journal.", default=Path("state"))
    client: bool = setting("Whether it trains on data of its own.", default=True)
    aggregator: bool = setting("Whether it may own shards.", default=True)
    max_share: float = setting(
        "Largest share of a client's update it may be given, above 0, at most 1.",
        default=0.5, within="a share above 0 and at most 1",
    )  # fmt: skip

    linger: float = setting(
        "Seconds it stays after the last round, for members that are behind.",
        default=60.0, within="a number above 0",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_name(self.name, "node.name")
        endpoint(self.listen, "node.listen", any_port=True)
        if self.address is not None:
            dialled(self.address, "node.address", any_port=True)


@dataclass(frozen=True, kw_only=True)
class TLSTable(Table):
    """Certificates, as `eris ca issue` makes them; paths begin at this file's folder."""

    title: ClassVar[str] = "tls"
    certificate: Path = setting("This node's certificate.", example="anna.pem")
    key: Path = setting("Its private key, readable by this node alone.", example="anna.key")
    authority: Path = setting("The federation's authority.", example="ca.pem")
    clients_key: Path | None = setting(
        "The private key that all clients have in common, with method sefl; an aggregation server "
        "has none.",
        default=None, example="clients.key",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MembershipTable(Table):
    """Who keeps the list of members: exactly one of directory, host_directory and roster."""

    title: ClassVar[str] = "membership"
    directory: str | None = setting(
        "host:port of the member that hosts the directory.",
        default=None, example="ben.example.org:7400",
    )  # fmt: skip
    directory_name: str | None = setting(
        "That member's name, which its certificate must show.", default=None, example="ben"
    )
    host_directory: bool = setting("Whether this node hosts the directory.", default=False)
    roster: Path | None = setting(
        "A file that lists all members, for a federation without a directory.",
        default=None, example="roster.toml",
    )  # fmt: skip
    start_with: int | None = setting(
        "Members that must have joined before round 1; agreed: the same at all members.",
        default=None, within=FEW, example=3,
        empty="with a roster all of it, otherwise it is required",
    )  # fmt: skip
    lease: float = setting(
        "Seconds without a sign of life after which the directory plans without a member; only "
        "read where it is hosted.",
        default=10.0, within=ABOVE_0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        ways = ("directory", "host_directory", "roster")
        chosen = [way for way in ways if getattr(self, way) not in (None, False)]
        if len(chosen) != 1:
            found = " and ".join(chosen) or UNSET
            expected = "one of directory, host_directory = true and roster"
            raise InvalidSetting("the choice in [membership]", found, expected)
        if self.directory is not None:
            dialled(self.directory, "membership.directory")
            if self.directory_name is None:
                expected = "the name of the member that hosts the directory"
                raise InvalidSetting("membership.directory_name", UNSET, expected)
            checked_name(self.directory_name, "membership.directory_name")
        elif self.directory_name is not None:
            expected = "none: there is no directory to dial"
            raise InvalidSetting("membership.directory_name", self.directory_name, expected)
        if self.start_with is None and self.roster is None:
            expected = "the number of members that begin, the same at all members"
            raise InvalidSetting("membership.start_with", UNSET, expected)


@dataclass(frozen=True, kw_only=True)
class FederationTable(Table):
    """What all members agree on: the same at every node, or it is not let in."""

    title: ClassVar[str] = "federation"
    name: str = setting(
        "Name of the federation.", within="1 to 100 characters", example="our-federation"
    )
    rounds: int = setting("Rounds of training.", within="1 to 1,000,000,000", example=100)
    method: str = setting(
        "How updates are cut, compressed and protected, and whether owners of shards, one server "
        "or nobody aggregates: a method of `eris methods`.",
        default="eris", example="fedavg",
    )  # fmt: skip
    method_options: Mapping[str, Any] = setting(
        "Settings of the method, as `eris methods NAME` lists them; those of eris are the keys "
        "below instead, from shards to of_a_client.",
        default={}, empty="the method's own defaults", example={"clusters": 128},
    )  # fmt: skip
    seed: int = setting("Seed of shards and kept sets.", default=0, within="0 to 2**64 - 1")
    shards: int | None = setting(
        "Shards that an update is cut into.", default=None, within=FEW,
        empty="start_with", example=3,
    )  # fmt: skip
    kept_fraction: float | None = setting(
        "Share of the coordinates that travel (rand-p).",
        default=None, empty="no compression", example=0.05,
    )  # fmt: skip
    compressor: str | None = setting(
        "Another way to make updates small: qsgd:LEVELS, uniform:BITS, natural or rand-k:COUNT.",
        default=None, empty="none, or rand-p by kept_fraction", example="qsgd:16",
    )  # fmt: skip
    basis: Literal["coordinates", "rotated"] | None = setting(
        "What kept_fraction is a share of: the model's coordinates, with shifted compression, or "
        "rotated ones.",
        default=None, empty="rotated if kept_fraction is below 0.03", example="rotated",
    )  # fmt: skip
    limit: float | None = setting(
        "Length of the steps if all kept values were at their limit, with the rule fedavgm; 0: no "
        "limit.",
        default=None, empty="no limit; required where the basis is rotated and the rule fedavgm",
        example=0.3,
    )  # fmt: skip
    mask_groups: int = setting(
        "Groups of five clients or more, each with a rotated kept set of its own.", default=1
    )
    rule: str = setting(f"What a mean does to the model: {', '.join(RULES)}.", default="fedavg")
    rule_options: Mapping[str, Any] = setting(
        "Settings of the rule, such as learning_rate.",
        default={}, empty="the rule's own defaults", example={"learning_rate": 0.01},
    )  # fmt: skip
    secure_sums: str = setting(
        "Helpers that open sums of a shard together, so that its owner reads no single update: "
        "2 of 3, 3 of 4, or 2 of 2 to 5 of 5. With none, an owner can read every client's values "
        "in its shards.",
        default="none", example="2 of 3",
    )  # fmt: skip
    ring_bytes: int = setting(
        "Bytes that a masked value travels in: 4, 5, 6 or 8; fewer are a coarser grid.", default=8
    )
    colluders: int | None = setting(
        "Clients that may tell an owner what they sent, with secure sums.",
        default=None, empty="as many as helpers may collude: 1 with 2 of 3", example=1,
    )  # fmt: skip
    min_included: int | None = setting(
        "Fewest clients whose mean is published.",
        default=None, example=3,
        empty="3; with secure sums 3 + colluders; with epsilon nine in ten of start_with as well",
    )  # fmt: skip
    epsilon: float | None = setting(
        "ε of the noise that clients share, for whoever reads the results of all rounds and has up "
        "to so many colluders; needs secure_sums.",
        default=None, within=ABOVE_0, empty="no noise", example=8.0,
    )  # fmt: skip
    delta: float = setting("δ beside epsilon: well below 1 in all samples there are.", default=1e-5)
    protects: Literal["sample", "client"] = setting(
        "What noise hides: one sample (one local step a round, no state at clients), or one "
        "client's whole data (any training).",
        default="sample",
    )  # fmt: skip
    clip: float = setting(
        "Longest gradient of a sample, or update of a client, that noise hides; longer ones are "
        "cut.",
        default=1.0, within=ABOVE_0,
    )  # fmt: skip
    sampling_rate: float = setting(
        "Share of its samples that a client trains on in a round, with epsilon, each chosen by a "
        "coin that nobody else sees; below 1 every node needs dp-accounting (eris-fl[audit]).",
        default=1.0,
    )  # fmt: skip
    most_samples: int | None = setting(
        "Most samples of one client, with epsilon: samples are public weights, and bound a sum.",
        default=None, within=AT_LEAST_1, empty="none; required with epsilon", example=5000,
    )  # fmt: skip
    most_clients: int | None = setting(
        "Most clients of one sum, with epsilon: who joins beyond them follows without training.",
        default=None, within=FEW, empty="start_with", example=8,
    )  # fmt: skip
    sigma: str | None = setting(
        "Noise that readers find in every sum, as float.hex() writes it; to be written where "
        "members' machines compute different ones.",
        default=None, empty="computed", example="0x1.e5p+2",
    )  # fmt: skip
    of_a_client: str | None = setting(
        "Noise that every client adds, written likewise.",
        default=None, empty="computed", example="0x1.2p+0",
    )  # fmt: skip
    quorum: int | None = setting(
        "Clients without which a segment is not closed at the deadline; a majority of those "
        "that are there is needed in any case.", default=None,
        within=AT_LEAST_1, empty="more than half of start_with, at least min_included", example=3,
    )  # fmt: skip
    close_after: float = setting(
        "Seconds from a round's start to an owner's deadline.", default=10.0
    )
    catch_up_after: float = setting(
        "Seconds from a round's start until a member asks for results it lacks.", default=15.0
    )
    retry_every: float = setting("Seconds between such requests.", default=2.0)
    history: int = setting("Rounds whose results are kept for members that ask.", default=1)
    segment_size: int | None = setting(
        "Coordinates in a segment, the piece that travels.", default=None,
        empty="so many that a message has 64 KiB, of large models up to 256 if all own shards",
        example=65536,
    )  # fmt: skip
    value_range: float = setting(
        "Largest magnitude of a value of an update; below 2⁻⁴⁰ of it values vanish.", default=64.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == ERIS.name:
            for key, value in self.method_options.items():
                expected = "nothing beside eris, whose settings are keys of [federation]"
                raise InvalidSetting(f"federation.method_options.{key}", value, expected)
            return
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in OF_ERIS and value != item.default:
                expected = f"nothing beside method = {self.method!r}: it is a setting of eris"
                raise InvalidSetting(f"federation.{item.name}", value, expected)

    def gossip(self) -> GossipMethod | None:
        """The method if nodes gossip by it, with secrets that are drawn here and now; or why they
        cannot."""
        if not issubclass(METHODS.get(self.method, ERIS), GossipMethod):
            return None
        method = self._named()
        assert isinstance(method, GossipMethod)
        for name, value in self.method_options.items():
            if name not in method.public:
                expected = "nothing: a secret, which every node draws for itself"
                raise InvalidSetting(f"method_options.{name}", value, expected)
        if not isinstance(self.server_rule(), FedAvg):
            expected = f"'fedavg', for a node's own step: with {self.method} nobody aggregates"
            raise InvalidSetting("rule", self.rule, expected)
        return method.with_secrets(secret_seed)

    def _named(self) -> Method | GossipMethod:
        known = METHODS.get(self.method)
        options = check_settings(known, self.method_options) if known else {}
        return create(self.method, **options)

    def parts(self, clients: int, shards: int = 1) -> Composition:
        """What the method is made of for so many clients, and for eris shards; or why nodes cannot
        carry it."""
        if self.method == ERIS.name:
            same = {name: getattr(self, name) for name in AS_IN_ERIS}
            options = {"aggregators": shards, "secure": self.secure_sums, **same}
            method = create(self.method, **options)
        else:
            method = self._named()
        if isinstance(method, GossipMethod):
            raise InvalidSetting("method", self.method, "an aggregating one: nobody does here")
        names = [f"client-{number}" for number in range(max(clients, shards))]
        parts = method.compose(names, [1] * len(names))
        if parts.scheme.in_step:
            expected = f"another one where members may fail: {parts.scheme.in_step}"
            raise InvalidSetting("method", self.method, expected)
        return parts

    def server_rule(self) -> ServerRule:
        """The rule with its options."""
        if self.rule not in RULES:
            return server_rule(self.rule)  # says why not
        known = [item.name for item in fields(RULES[self.rule])]
        for key in self.rule_options:
            if key not in known:
                raise InvalidSetting("rule_options", key, one_of(known, key))
        return server_rule(self.rule, **check_settings(RULES[self.rule], self.rule_options))


@dataclass(frozen=True, kw_only=True)
class TrainingTable(Table):
    """Your training code."""

    title: ClassVar[str] = "training"
    trainer: str = setting(
        "module:function that makes the trainer.", example="my_training:make_trainer"
    )
    options: Mapping[str, Any] = setting(
        "What the function is called with.", default={}, empty="nothing",
        example={"data": "patients.csv"},
    )  # fmt: skip
    evaluate_every: int = setting(
        "Rounds between evaluations by the trainer, if it has evaluate(); 0: after the last alone.",
        default=1, within=AT_LEAST_0,
    )  # fmt: skip
    most_failures: int = setting(
        "Failures of update() in a row after which the node stops.", default=10, within=AT_LEAST_1
    )
    slow_after: float = setting(
        "Seconds that an update may take before the node says so and is not ready.",
        default=120.0, within=ABOVE_0,
    )  # fmt: skip
    time_limit: float | None = setting(
        "Seconds that an update may take before the node stops.",
        default=None, within=ABOVE_0, empty="no limit", example=3600.0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_named(self.trainer):
            expected = "module:function, such as my_training:make_trainer"
            raise InvalidSetting("training.trainer", self.trainer, expected)


@dataclass(frozen=True, kw_only=True)
class PrivacyTable(Table):
    """What noise may cost this node's data, where the federation has an epsilon."""

    title: ClassVar[str] = "privacy"
    data: str | None = setting(
        "Name of this node's data, which its ledger bears: the same in all federations and runs.",
        default=None, empty="none; required with federation.epsilon", example="ward-3",
    )  # fmt: skip
    ledger: Path = setting(
        "Folder of the ledgers, for all nodes and federations on the same data; never empty it.",
        default=Path("privacy"),
    )  # fmt: skip
    weight: int | None = setting(
        "Samples that this client counts as, in all rounds, whatever leaves its data; public.",
        default=None, within=AT_LEAST_1, empty="those of its first update", example=500,
    )  # fmt: skip
    epsilon_sample: float | None = setting(
        "Most ε of one sample, over all federations on the data.",
        default=None, within=ABOVE_0, example=8.0,
        empty="federation.epsilon if it protects samples, otherwise no limit",
    )  # fmt: skip
    epsilon_client: float | None = setting(
        "Most ε of the whole data, likewise.",
        default=None, within=ABOVE_0, example=8.0,
        empty="federation.epsilon if it protects clients, otherwise no limit",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data is not None:
            data_name(self.data, "privacy.data")


@dataclass(frozen=True, kw_only=True)
class LimitsTable(Table):
    """What peers may use of this node's memory."""

    title: ClassVar[str] = "limits"
    queue_bytes: int = setting(
        "Bytes that may wait to be sent to one peer.", default=8 << 20, within=AT_LEAST_1
    )
    message_bytes: int | None = setting(
        "Largest message that is taken, in bytes.", default=None, within=AT_LEAST_1,
        empty="what a snapshot of the model's largest segment needs", example=4 << 20,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CheckpointTable(Table):
    """What survives a restart."""

    title: ClassVar[str] = "checkpoint"
    every_seconds: float = setting(
        "Seconds between checkpoints of the model.", default=30.0, within=ABOVE_0
    )


@dataclass(frozen=True, kw_only=True)
class ObserveTable(Table):
    """What this node tells its administrator."""

    title: ClassVar[str] = "observe"
    http: str = setting(
        "host:port of /metrics, /health, /ready and /status; :port is on loopback; empty: none.",
        default="",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "How much is logged: debug, info, warning or error.", default="info"
    )
    log_format: Literal["text", "json"] = setting(
        "text for people, json for log collectors.", default="text"
    )
    record: bool = setting(
        "Whether every message this node receives is kept for an audit.", default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.http:
            endpoint(self.http, "observe.http", host=LOOPBACK, any_port=True)
