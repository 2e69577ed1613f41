from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_DENSE: _ClassVar[Encoding]
    ENCODING_KEPT: _ClassVar[Encoding]
    ENCODING_QSGD: _ClassVar[Encoding]
    ENCODING_UNIFORM: _ClassVar[Encoding]
    ENCODING_NATURAL: _ClassVar[Encoding]
    ENCODING_SPARSE: _ClassVar[Encoding]
    ENCODING_RING: _ClassVar[Encoding]
    ENCODING_CLUSTERED: _ClassVar[Encoding]
    ENCODING_CIPHERTEXTS: _ClassVar[Encoding]
ENCODING_UNSPECIFIED: Encoding
ENCODING_DENSE: Encoding
ENCODING_KEPT: Encoding
ENCODING_QSGD: Encoding
ENCODING_UNIFORM: Encoding
ENCODING_NATURAL: Encoding
ENCODING_SPARSE: Encoding
ENCODING_RING: Encoding
ENCODING_CLUSTERED: Encoding
ENCODING_CIPHERTEXTS: Encoding

class Payload(_message.Message):
    __slots__ = ("encoding", "count", "parameter", "stream", "data")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    count: int
    parameter: float
    stream: int
    data: bytes
    def __init__(self, encoding: _Optional[_Union[Encoding, str]] = ..., count: _Optional[int] = ..., parameter: _Optional[float] = ..., stream: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("version", "federation", "epoch", "sender", "round", "shard", "segment")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    version: int
    federation: int
    epoch: int
    sender: int
    round: int
    shard: int
    segment: int
    def __init__(self, version: _Optional[int] = ..., federation: _Optional[int] = ..., epoch: _Optional[int] = ..., sender: _Optional[int] = ..., round: _Optional[int] = ..., shard: _Optional[int] = ..., segment: _Optional[int] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("based_on", "samples", "steps", "payload")
    BASED_ON_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    based_on: int
    samples: int
    steps: int
    payload: Payload
    def __init__(self, based_on: _Optional[int] = ..., samples: _Optional[int] = ..., steps: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("previous", "included", "samples", "sample_steps", "payload", "digest", "closed", "exponent")
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_STEPS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    EXPONENT_FIELD_NUMBER: _ClassVar[int]
    previous: int
    included: bytes
    samples: int
    sample_steps: int
    payload: Payload
    digest: bytes
    closed: bytes
    exponent: int
    def __init__(self, previous: _Optional[int] = ..., included: _Optional[bytes] = ..., samples: _Optional[int] = ..., sample_steps: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., digest: _Optional[bytes] = ..., closed: _Optional[bytes] = ..., exponent: _Optional[int] = ...) -> None: ...

class CatchUp(_message.Message):
    __slots__ = ("have", "whole")
    HAVE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    have: int
    whole: bool
    def __init__(self, have: _Optional[int] = ..., whole: bool = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("at", "updates", "model", "reference", "slots", "closed", "last_included", "exponent")
    AT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    LAST_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    EXPONENT_FIELD_NUMBER: _ClassVar[int]
    at: int
    updates: int
    model: Payload
    reference: Payload
    slots: _containers.RepeatedCompositeFieldContainer[Payload]
    closed: bytes
    last_included: _containers.RepeatedScalarFieldContainer[int]
    exponent: int
    def __init__(self, at: _Optional[int] = ..., updates: _Optional[int] = ..., model: _Optional[_Union[Payload, _Mapping]] = ..., reference: _Optional[_Union[Payload, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ..., closed: _Optional[bytes] = ..., last_included: _Optional[_Iterable[int]] = ..., exponent: _Optional[int] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("at", "digest")
    AT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    at: int
    digest: bytes
    def __init__(self, at: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class RevealRequest(_message.Message):
    __slots__ = ("included", "data")
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    included: bytes
    data: bytes
    def __init__(self, included: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class Reveal(_message.Message):
    __slots__ = ("included", "data")
    INCLUDED_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    included: bytes
    data: bytes
    def __init__(self, included: _Optional[bytes] = ..., data: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "no_result", "again")
    REASON_FIELD_NUMBER: _ClassVar[int]
    NO_RESULT_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    no_result: bool
    again: bool
    def __init__(self, reason: _Optional[str] = ..., no_result: bool = ..., again: bool = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("payload", "names")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    payload: Payload
    names: bytes
    def __init__(self, payload: _Optional[_Union[Payload, _Mapping]] = ..., names: _Optional[bytes] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("header", "contribution", "result", "catch_up", "snapshot", "refusal", "share", "holding", "reveal_request", "reveal")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    REVEAL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    REVEAL_FIELD_NUMBER: _ClassVar[int]
    header: Header
    contribution: Contribution
    result: Result
    catch_up: CatchUp
    snapshot: Snapshot
    refusal: Refusal
    share: Share
    holding: Holding
    reveal_request: RevealRequest
    reveal: Reveal
    def __init__(self, header: _Optional[_Union[Header, _Mapping]] = ..., contribution: _Optional[_Union[Contribution, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., catch_up: _Optional[_Union[CatchUp, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., holding: _Optional[_Union[Holding, _Mapping]] = ..., reveal_request: _Optional[_Union[RevealRequest, _Mapping]] = ..., reveal: _Optional[_Union[Reveal, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Record(_message.Message):
    __slots__ = ("time", "sender", "receivers", "message", "arrived")
    TIME_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    time: float
    sender: int
    receivers: _containers.RepeatedScalarFieldContainer[int]
    message: bytes
    arrived: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, time: _Optional[float] = ..., sender: _Optional[int] = ..., receivers: _Optional[_Iterable[int]] = ..., message: _Optional[bytes] = ..., arrived: _Optional[_Iterable[int]] = ...) -> None: ...

class TranscriptHeader(_message.Message):
    __slots__ = ("version", "settings", "members", "clients", "owners", "final_model", "samples", "epoch", "epochs")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    FINAL_MODEL_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    version: int
    settings: str
    members: _containers.RepeatedScalarFieldContainer[str]
    clients: _containers.RepeatedScalarFieldContainer[int]
    owners: _containers.RepeatedScalarFieldContainer[int]
    final_model: bytes
    samples: _containers.RepeatedScalarFieldContainer[int]
    epoch: int
    epochs: _containers.RepeatedCompositeFieldContainer[Roles]
    def __init__(self, version: _Optional[int] = ..., settings: _Optional[str] = ..., members: _Optional[_Iterable[str]] = ..., clients: _Optional[_Iterable[int]] = ..., owners: _Optional[_Iterable[int]] = ..., final_model: _Optional[bytes] = ..., samples: _Optional[_Iterable[int]] = ..., epoch: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[Roles, _Mapping]]] = ...) -> None: ...

class Roles(_message.Message):
    __slots__ = ("epoch", "clients", "owners", "samples")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    clients: _containers.RepeatedScalarFieldContainer[int]
    owners: _containers.RepeatedScalarFieldContainer[int]
    samples: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epoch: _Optional[int] = ..., clients: _Optional[_Iterable[int]] = ..., owners: _Optional[_Iterable[int]] = ..., samples: _Optional[_Iterable[int]] = ...) -> None: ...
