from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("address", "charter", "client", "aggregator", "max_share", "mark", "keys", "samples")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CHARTER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARE_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    address: str
    charter: str
    client: bool
    aggregator: bool
    max_share: float
    mark: Mark
    keys: KeyStatement
    samples: int
    def __init__(self, address: _Optional[str] = ..., charter: _Optional[str] = ..., client: bool = ..., aggregator: bool = ..., max_share: _Optional[float] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., keys: _Optional[_Union[KeyStatement, _Mapping]] = ..., samples: _Optional[int] = ...) -> None: ...

class KeyStatement(_message.Message):
    __slots__ = ("start", "exchange", "signing", "certificate", "signature")
    START_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    SIGNING_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    start: int
    exchange: bytes
    signing: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, start: _Optional[int] = ..., exchange: _Optional[bytes] = ..., signing: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("ledger", "term", "revision", "seal")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    ledger: str
    term: str
    revision: int
    seal: str
    def __init__(self, ledger: _Optional[str] = ..., term: _Optional[str] = ..., revision: _Optional[int] = ..., seal: _Optional[str] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("number", "abstain_through", "incarnation", "standing")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ABSTAIN_THROUGH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    number: int
    abstain_through: int
    incarnation: int
    standing: Standing
    def __init__(self, number: _Optional[int] = ..., abstain_through: _Optional[int] = ..., incarnation: _Optional[int] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("round", "incarnation", "mark", "keys", "knows", "number")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KNOWS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    round: int
    incarnation: int
    mark: Mark
    keys: KeyStatement
    knows: int
    number: int
    def __init__(self, round: _Optional[int] = ..., incarnation: _Optional[int] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., keys: _Optional[_Union[KeyStatement, _Mapping]] = ..., knows: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("incarnation", "published", "mark")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    published: int
    mark: Mark
    def __init__(self, incarnation: _Optional[int] = ..., published: _Optional[int] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ...) -> None: ...

class Left(_message.Message):
    __slots__ = ("time",)
    TIME_FIELD_NUMBER: _ClassVar[int]
    time: float
    def __init__(self, time: _Optional[float] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("me", "members", "addresses", "views", "through", "round", "time", "mark", "held", "stated")
    ME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    STATED_FIELD_NUMBER: _ClassVar[int]
    me: int
    members: _containers.RepeatedScalarFieldContainer[str]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    views: _containers.RepeatedCompositeFieldContainer[ScheduledView]
    through: int
    round: int
    time: float
    mark: Mark
    held: int
    stated: _containers.RepeatedCompositeFieldContainer[StatedKeys]
    def __init__(self, me: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., addresses: _Optional[_Iterable[str]] = ..., views: _Optional[_Iterable[_Union[ScheduledView, _Mapping]]] = ..., through: _Optional[int] = ..., round: _Optional[int] = ..., time: _Optional[float] = ..., mark: _Optional[_Union[Mark, _Mapping]] = ..., held: _Optional[int] = ..., stated: _Optional[_Iterable[_Union[StatedKeys, _Mapping]]] = ...) -> None: ...

class StatedKeys(_message.Message):
    __slots__ = ("member", "keys")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    member: int
    keys: KeyStatement
    def __init__(self, member: _Optional[int] = ..., keys: _Optional[_Union[KeyStatement, _Mapping]] = ...) -> None: ...

class ScheduledView(_message.Message):
    __slots__ = ("epoch", "from_round", "members", "clients", "owners", "helpers", "keys", "samples")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_ROUND_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    HELPERS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    from_round: int
    members: int
    clients: _containers.RepeatedScalarFieldContainer[int]
    owners: _containers.RepeatedScalarFieldContainer[int]
    helpers: _containers.RepeatedScalarFieldContainer[int]
    keys: _containers.RepeatedScalarFieldContainer[int]
    samples: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epoch: _Optional[int] = ..., from_round: _Optional[int] = ..., members: _Optional[int] = ..., clients: _Optional[_Iterable[int]] = ..., owners: _Optional[_Iterable[int]] = ..., helpers: _Optional[_Iterable[int]] = ..., keys: _Optional[_Iterable[int]] = ..., samples: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("charter", "epoch", "from_round", "round", "start_with", "lease", "members", "shards", "time")
    CHARTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FROM_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    START_WITH_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    charter: str
    epoch: int
    from_round: int
    round: int
    start_with: int
    lease: float
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    time: float
    def __init__(self, charter: _Optional[str] = ..., epoch: _Optional[int] = ..., from_round: _Optional[int] = ..., round: _Optional[int] = ..., start_with: _Optional[int] = ..., lease: _Optional[float] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ..., time: _Optional[float] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("name", "address", "presence", "client", "aggregator", "max_share", "round", "through", "lease_left", "party", "keys_from")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FROM_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    presence: str
    client: bool
    aggregator: bool
    max_share: float
    round: int
    through: int
    lease_left: float
    party: str
    keys_from: int
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., presence: _Optional[str] = ..., client: bool = ..., aggregator: bool = ..., max_share: _Optional[float] = ..., round: _Optional[int] = ..., through: _Optional[int] = ..., lease_left: _Optional[float] = ..., party: _Optional[str] = ..., keys_from: _Optional[int] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("size", "owner", "heir", "helpers")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HEIR_FIELD_NUMBER: _ClassVar[int]
    HELPERS_FIELD_NUMBER: _ClassVar[int]
    size: int
    owner: int
    heir: int
    helpers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, size: _Optional[int] = ..., owner: _Optional[int] = ..., heir: _Optional[int] = ..., helpers: _Optional[_Iterable[int]] = ...) -> None: ...
