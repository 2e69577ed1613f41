"""A node's settings as a whole: ``node.toml`` and the environment, checked before it starts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from eris.core.combine import FixedPoint
from eris.core.errors import InvalidSetting, library
from eris.core.rules import RULES
from eris.core.shards import segment_length
from eris.methods.eris import ERIS
from eris.methods.method import Composition, GossipMethod
from eris.methods.registry import METHODS
from eris.methods.registry import settings_of as method_settings
from eris.protocol.gossip.peer import GossipSettings
from eris.protocol.secure.noise_terms import SharedNoise, usually_included, without_secure_sums
from eris.protocol.secure.terms import SecureSums
from eris.protocol.settings import Settings, warn_of_sparse_masks
from eris.protocol.view import View
from eris.runtimes.grpc.addresses import dialled, endpoint, written
from eris.runtimes.grpc.pem import checked_name
from eris.runtimes.grpc.roster import Roster, RosterMember
from eris.runtimes.grpc.sections import (
    CheckpointTable,
    FederationTable,
    LimitsTable,
    MembershipTable,
    NodeTable,
    ObserveTable,
    PrivacyTable,
    TLSTable,
    TrainingTable,
)
from eris.tables import (
    UNSET,
    Table,
    described,
    document_in,
    explained,
    located,
    override,
    put,
    required,
    settings_of,
    subtables,
    values_in,
)

Agreed: TypeAlias = Settings | GossipSettings
"""What members agree on, whether they aggregate or gossip."""
USUAL_SECURE_SUMS = "2 of 3"
MESSAGE_VALUES = 1 << 14
"""Values in a message, as a rule."""
PIECES = 40
"""Segments that a shard has where messages are larger."""
_RULE_OPTIONS = {item.name for rule in RULES.values() for item in fields(rule)}


@dataclass(frozen=True, kw_only=True)
class NodeSettings(Table):
    """All settings of a node; the properties give those that follow from others."""

    node: NodeTable
    tls: TLSTable
    membership: MembershipTable
    federation: FederationTable
    training: TrainingTable
    privacy: PrivacyTable = field(default_factory=PrivacyTable)
    limits: LimitsTable = field(default_factory=LimitsTable)
    checkpoint: CheckpointTable = field(default_factory=CheckpointTable)
    observe: ObserveTable = field(default_factory=ObserveTable)
    roster: Roster | None = None
    path: Path = field(default=Path("node.toml"), compare=False)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The environment variable that a setting came from, for errors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.node.address is None:
            dialled(self.node.listen, "node.address, that of node.listen,", any_port=True)
        if self.gossip is not None:
            self._check_gossip(self.gossip)
            return
        self._check_roles()
        most, whose = self.usual_clients, "membership.start_with"
        if self.parts.central:
            whose = "the clients among membership.start_with, of which one is the server"
        if self.roster is not None:
            if most > len(self.roster.members):
                expected = f"at most {len(self.roster.members)}, the members in {self.roster.path}"
                raise InvalidSetting(whose, most, expected)
            if self.federation.secure_sums != "none":
                expected = "none, or a directory: keys are drawn at every start and told to it"
                raise InvalidSetting(
                    "federation.secure_sums", self.federation.secure_sums, expected
                )
            if self.parts.scheme.keyed or self.parts.scheme.weighed:
                expected = "another one, or a directory: it is told keys or samples at every start"
                raise InvalidSetting("federation.method", self.federation.method, expected)
            clients = sum(member.client for member in self.roster.members)
            if clients < most:
                most, whose = clients, "the clients in the roster"
        if self.federation.epsilon is not None:
            if self.node.client and self.privacy.data is None:
                expected = (
                    "a name for this node's data, such as ward-3: what noise costs is noted in the "
                    "ledger that bears it"
                )
                raise InvalidSetting("privacy.data", UNSET, expected)
            most_samples, weight = self.federation.most_samples, self.privacy.weight
            if most_samples is not None and weight is not None and weight > most_samples:
                expected = f"at most {most_samples}, federation.most_samples"
                raise InvalidSetting("privacy.weight", weight, expected)
            if self.most_clients < self.start_with:
                expected = f"at least {self.start_with}, membership.start_with"
                raise InvalidSetting("federation.most_clients", self.most_clients, expected)
        with self._named():
            self.parts.scheme.check_view(self.parts.view)
            if self.secure is not None:
                everyone = [str(number) for number in range(most)]
                self.secure.check_view(View.serverless(everyone, aggregators=1))
        for name, value in {
            "min_included": self.min_included,
            "quorum": self.quorum,
        }.items():
            if value > most:
                expected = f"at most {most}, {whose}: with fewer clients nothing is published"
                raise InvalidSetting(f"federation.{name}", value, expected)

    def _check_gossip(self, method: GossipMethod) -> None:
        """Refuse members that do not train, where all do, and too few for the graph."""
        if not self.node.client:
            expected = f"true: with {method.name} every member trains and has a model of its own"
            raise InvalidSetting("node.client", False, expected)
        with self._named():
            fewest = replace(self._gossiping(method, 1 << 20, ""), nodes=self.start_with)
            method.members(fewest, os.urandom)

    def _gossiping(self, method: GossipMethod, n: int, initial: str) -> GossipSettings:
        ours = self.federation
        rate = ours.server_rule().learning_rate
        return GossipSettings(
            n, self.start_with, method.name, method.parameters, ours.seed, rate, initial,
            ours.name, ours.close_after, ours.retry_every, method.least_members,
        )  # fmt: skip

    def _check_roles(self) -> None:
        """Refuse roles that a method with one server does not have."""
        method, node = self.federation.method, self.node
        if not self.parts.central:
            return
        if self.roster is not None:
            servers = [member for member in self.roster.members if member.aggregator]
            if len(servers) != 1 or servers[0].client:
                expected = f"true for one member without data: {method} has one aggregation server"
                raise InvalidSetting("member.aggregator", f"true for {len(servers)}", expected)
        if node.aggregator and node.client:
            expected = f"one of the two: {method} has one aggregation server, which has no data"
            raise InvalidSetting("node.client and node.aggregator", "true", expected)
        if node.aggregator and self.roster is None and node.max_share < 1:
            expected = f"1: the aggregation server of {method} is given whole updates"
            raise InvalidSetting("node.max_share", node.max_share, expected)

    # -- reading ------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: Path, environ: Mapping[str, str] = os.environ) -> NodeSettings:
        """Read ``node.toml`` and what the environment overrides; refuse by file, key and reason."""
        path = Path(path)
        found = document_in(path, "settings file")
        origins: dict[str, str] = {}
        with located(path, origins):
            origins |= override(cls, found, environ)
            parts = values_in(cls, found, path.parent.absolute())
        if parts["membership"].roster is not None:
            parts["roster"] = Roster.load(parts["membership"].roster)
        with located(path, origins):
            if "roster" in parts:
                member = parts["roster"].member(parts["node"].name)
                parts["node"] = _as_in_roster(parts["node"], found["node"], member)
            settings = cls(**parts, path=path, origins=origins)
        shards = 1 if settings.gossip is not None else settings.parts.plan.shards
        settings.agreed(1024 * shards)  # the model's size is not known yet
        return settings

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the keys of ``node.toml`` where the agreement has names of its own."""
        try:
            yield
        except InvalidSetting as wrong:
            name, method = f"federation.{wrong.name}", self.federation.method
            if " " in wrong.name:  # no key, but what follows from several
                name = wrong.name
            elif (
                method != ERIS.name and method in METHODS and wrong.name in method_settings(method)
            ):
                name = f"federation.method_options.{wrong.name}"
            elif wrong.name in _RULE_OPTIONS:
                name = f"federation.rule_options.{wrong.name}"
            elif wrong.name == "n":
                name = "the model's number of parameters"
            raise InvalidSetting(name, wrong.value, wrong.expected) from None

    # -- what follows -------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where others dial this node; port 0 stands for the one it comes to listen at."""
        return self.node.address or self.node.listen

    def reachable(self, port: int) -> str:
        """Where others dial this node, now that it listens at ``port``."""
        host, fixed = endpoint(self.address, any_port=True)
        return written(host, fixed or port)

    @property
    def start_with(self) -> int:
        """Members that must have joined before round 1."""
        given = self.membership.start_with
        if given is None:
            assert self.roster is not None, "a membership without a roster has it"
            return len(self.roster.members)
        return given

    @property
    def shards(self) -> int:
        """Shards that an update is cut into."""
        return self.federation.shards or self.start_with

    @cached_property
    def gossip(self) -> GossipMethod | None:
        """The method, if members gossip; with this node's own secrets."""
        with self._named():
            return self.federation.gossip()

    @cached_property
    def parts(self) -> Composition:
        """What the method is made of, for as many clients as begin; who they are, views say."""
        with self._named():
            ours, shards = (
                self.federation,
                self.shards if self.federation.method == ERIS.name else 1,
            )
            parts = ours.parts(self.start_with, shards)
            return ours.parts(max(1, self.start_with - 1)) if parts.central else parts

    @property
    def secure(self) -> SecureSums | None:
        """What is agreed on secure sums, if there are any."""
        return None if self.gossip is not None else self.parts.secure

    @property
    def usual_clients(self) -> int:
        """Clients that begin, if all do that can."""
        return max(1, self.start_with - 1) if self.parts.central else self.start_with

    @property
    def min_included(self) -> int:
        """Fewest clients whose mean is published."""
        usual = 3 if self.secure is None else self.secure.least_included
        if self.federation.epsilon is not None:
            usual = max(usual, usually_included(self.start_with))
        given = self.federation.min_included
        return usual if given is None else given

    @property
    def quorum(self) -> int:
        """Clients without which a segment is not closed at the deadline."""
        usual = max(self.min_included, self.usual_clients // 2 + 1)
        return self.federation.quorum or usual

    def agreed(self, n: int, initial_digest: str = "") -> Agreed:
        """What the members agree on, for a model of ``n`` coordinates and its digest."""
        if self.gossip is None:
            return self.agreement(n, initial_digest)
        with located(self.path, self.origins), self._named():
            gossiping = self._gossiping(self.gossip, n, initial_digest)
            self.gossip.members(gossiping, os.urandom)  # refuses a model that is too small
        return gossiping

    def agreement(self, n: int, initial_digest: str = "") -> Settings:
        """The same of members that aggregate."""
        ours = self.federation
        same = ("close_after", "catch_up_after", "retry_every", "history", "seed", "name")
        with located(self.path, self.origins), self._named():
            agreed = Settings(
                n=n,
                plan=self.parts.plan,
                rule=ours.server_rule(),
                scheme=self.parts.scheme,
                secure=self.secure,
                noise=self._noise(),
                non_finite="refuse" if ours.epsilon is None else "zero",
                precision=FixedPoint(value_range=ours.value_range),
                min_included=self.min_included,
                quorum=self.quorum,
                initial=initial_digest,
                segment_size=self._segment_size(n)
                if ours.segment_size is None
                else ours.segment_size,
                **{name: getattr(ours, name) for name in same},
            )
        warn_of_sparse_masks(agreed)
        return agreed

    def _noise(self) -> SharedNoise | None:
        """What every client adds to its part of a sum; the same numbers at all members."""
        ours = self.federation
        if ours.epsilon is None:
            for name in ("most_samples", "most_clients", "sigma", "of_a_client"):
                if getattr(ours, name) is not None:
                    raise InvalidSetting(name, getattr(ours, name), "nothing without epsilon")
            if ours.sampling_rate != 1:
                raise InvalidSetting("sampling_rate", ours.sampling_rate, "1 without epsilon")
            return None
        if self.secure is None:
            raise without_secure_sums()
        if ours.most_samples is None:
            expected = "the most samples of one client: they are public weights, and bound a sum"
            raise InvalidSetting("most_samples", UNSET, expected)
        if ours.sampling_rate < 1:
            library("dp_accounting", "dp-accounting, which federation.sampling_rate needs", "audit")
        planned = SharedNoise.planned(
            ours.protects, ours.epsilon, clip=ours.clip, rounds=ours.rounds, delta=ours.delta,
            clients=self.most_clients, samples=ours.most_samples, min_included=self.min_included,
            colluders=self.secure.known, sampling_rate=ours.sampling_rate,
        )  # fmt: skip
        return replace(
            planned,
            sigma=ours.sigma or planned.sigma,
            of_a_client=ours.of_a_client or planned.of_a_client,
        )

    @property
    def most_clients(self) -> int:
        """Clients that one sum may hold, where there is noise."""
        return self.federation.most_clients or self.start_with

    def _segment_size(self, n: int) -> int | None:
        """Coordinates of a segment: a message of 64 KiB, so that owners publish while clients send.

        Where every member owns a shard, a message is up to four times as large if that is still the
        size of a fortieth of a shard's values: all links carry results then, and fewer messages
        cost less. Words of secure sums are wider than values, and a segment of them is shorter, for
        large messages keep a link's other streams waiting. Where few own, everyone waits for their
        links, and small messages arrive in step. A scheme that has segments of its own has none to
        say.
        """
        scheme, shards = self.parts.scheme, self.parts.plan.shards
        if scheme.whole_shards:
            return None
        if scheme.longest_segment is not None:
            return min(scheme.longest_segment, max(1, 4 * MESSAGE_VALUES // scheme.value_bytes))
        shard, kept = -(-n // shards), self.federation.kept_fraction or 1
        values = MESSAGE_VALUES
        if shards >= self.start_with:
            wide = 1.0 if self.secure is None else self.secure.ring_bytes / scheme.value_bytes
            most = 4 * MESSAGE_VALUES / wide
            values = math.ceil(min(max(values, shard * kept / PIECES / wide), most))
        return min(segment_length(shard, None), math.ceil(values / kept))

    def charter(self, agreed: Agreed) -> str:
        """The agreement, how long it is to last and how many members begin, as canonical text; and
        the method, with all its settings where they are not keys of their own."""
        ours = self.federation
        also: dict[str, Any] = {
            "rounds": ours.rounds,
            "start_with": self.start_with,
            "method": ours.method,
        }
        if ours.method != ERIS.name:
            also["method_options"] = method_settings(ours.method) | dict(ours.method_options)
        return json.dumps(json.loads(agreed.canonical) | also, sort_keys=True)

    def message_bytes(self, agreed: Agreed) -> int:
        """The largest message this node takes; the snapshot of the largest segment has to pass, or
        what the method sends where members gossip.

        A snapshot has model, reference and the rule's slots at four bytes a coordinate, and what
        is encrypted may take more; the rest has room.
        """
        given = self.limits.message_bytes
        if isinstance(agreed, GossipSettings):
            assert self.gossip is not None
            each, largest = 4, self.gossip.largest(agreed)
        else:
            each = max(4 * (2 + len(agreed.rule.initial)), agreed.scheme.value_bytes)
            largest = agreed.segment_length(max(shard_sizes(agreed)))
        needed = largest * each + (64 << 10)
        if given is not None and given < needed:
            with located(self.path, self.origins):
                expected = f"at least {needed}, which this model needs"
                raise InvalidSetting("limits.message_bytes", given, expected)
        return given or needed

    # -- writing ------------------------------------------------------------------------------

    @staticmethod
    def template(name: str, values: Mapping[str, Any] | None = None) -> str:
        """A ``node.toml`` with every key explained, those not in ``values`` as comments.

        ``values`` go by their keys, such as "federation.rounds". What is required and not among
        them has an example's value.
        """
        checked_name(name, "node.name")
        given = _examples(name, values or {}) | dict(values or {})
        return explained(NodeSettings, put(NodeSettings, {}, given))


def usual_secure_sums(members: int) -> str:
    """What a new federation of so many members agrees on: one of them may be away."""
    usual = SecureSums.parse(USUAL_SECURE_SUMS)
    assert usual is not None
    return USUAL_SECURE_SUMS if members > usual.least_included else "none"


def shard_sizes(agreed: Agreed) -> list[int]:
    """Coordinates of every shard; there are none where members gossip."""
    if isinstance(agreed, GossipSettings):
        return []
    shard_map = agreed.shard_map()
    return [shard_map.size(shard) for shard in range(shard_map.shards)]


def reference() -> str:
    """Every key of ``node.toml`` and of a roster, as Markdown."""
    node = "\n".join(described(subtables(NodeSettings).values()))
    roster = "\n".join(described([RosterMember], variables=False))
    return f"## node.toml\n\n{node}\n\n## roster.toml\n\n{roster}\n"


def _examples(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for what a template cannot leave out."""
    found: dict[str, Any] = {
        f"{title}.{item.name}": item.metadata["example"]
        for title, table in subtables(NodeSettings).items()
        for item, _ in settings_of(table)
        if required(item)
    }
    found |= {"node.name": name, "tls.certificate": f"{name}.pem", "tls.key": f"{name}.key"}
    ways = {"membership.directory", "membership.host_directory", "membership.roster"}
    if not ways & values.keys():
        found["membership.host_directory"] = True
    if "membership.roster" not in values:  # which has both
        found["membership.start_with"] = 3
        if "node.listen" not in values:
            found["node.address"] = f"{name}.example.org:7400"
    return found


def _as_in_roster(node: NodeTable, given: Mapping[str, Any], member: RosterMember) -> NodeTable:
    """The node with the roles and the address that the roster gives it."""
    for key in ("address", "client", "aggregator"):
        listed = getattr(member, key)
        if key in given and getattr(node, key) != listed:
            expected = f"{listed!r}, as in the roster, or nothing"
            raise InvalidSetting(f"node.{key}", getattr(node, key), expected)
    return replace(node, address=member.address, client=member.client, aggregator=member.aggregator)
