"""The directory's messages: what they can say, and that it arrives as it was said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from eris.core.errors import ErisError
from eris.protocol import directory_pb2
from eris.protocol.authority.directory import Refused
from eris.protocol.directory_codec import (
    description_from_wire,
    description_to_wire,
    joined_from_wire,
    joined_to_wire,
    standing_from_wire,
    standing_to_wire,
)
from eris.protocol.view import NOBODY
from support.registry import founded, join, renew, restored


def fields(message: Descriptor) -> Iterator[FieldDescriptor]:
    yield from message.fields
    for inner in message.nested_types:
        yield from fields(inner)


def test_no_message_could_carry_an_update_or_a_model() -> None:
    fractions, numbers, binary = set(), set(), set()
    for message in directory_pb2.DESCRIPTOR.message_types_by_name.values():
        for field in fields(message):
            where = f"{message.name}.{field.name}"
            assert field.type != FieldDescriptor.TYPE_GROUP, where
            if field.type == FieldDescriptor.TYPE_BYTES:
                assert not field.is_repeated, where
                binary.add(where)
            if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
                assert not field.is_repeated, where
                fractions.add(field.name)
            elif field.is_repeated and field.message_type is None:
                if field.type != FieldDescriptor.TYPE_STRING:
                    numbers.add(where)
                else:
                    assert where in ("Standing.members", "Standing.addresses")
    assert fractions == {"max_share", "time", "lease", "lease_left"}
    assert numbers == {
        "ScheduledView.clients", "ScheduledView.owners", "ScheduledView.helpers",
        "ScheduledView.keys", "ScheduledView.samples", "ShardStatus.helpers",
    }  # fmt: skip
    # Keys are of a fixed size, and their proofs have limits (`check_statement`).
    assert binary == {
        f"KeyStatement.{name}" for name in ("exchange", "signing", "certificate", "signature")
    }
    # And requests, which come from whoever has something to hide in them, have no lists at all.
    for method in directory_pb2.DESCRIPTOR.services_by_name["Directory"].methods:
        assert not any(field.is_repeated for field in fields(method.input_type))


def test_answers_are_the_same_on_both_sides_of_the_wire() -> None:
    directory = founded()
    join(directory, 0.0, "anna", max_share=1 / 3)
    before = join(directory, 0.0, "ben", max_share=1 / 3, aggregator=False)
    renew(directory, 1.0, "anna", 4)
    joined = join(directory, 1.0, "cleo", client=False, max_share=0.4)
    assert joined.standing.views[-1].view.owners == (0, 2, NOBODY)
    for one in (before, joined):
        assert joined_from_wire(joined_to_wire(one, 7.0)) == one
        assert standing_from_wire(standing_to_wire(one.standing, 7.0)) == one.standing
    empty = founded().describe(0.0)
    assert empty.epoch == 0
    for description in (directory.describe(2.0), empty):
        assert description_from_wire(description_to_wire(description, 7.0)) == description


def test_views_declare_the_samples_that_clients_joined_with() -> None:
    directory = founded(weighed=True)
    join(directory, 0.0, "anna", samples=40)
    join(directory, 0.0, "ben", client=False)
    joined = join(directory, 0.0, "cleo", samples=2**40)
    view = joined.standing.views[-1].view
    assert (view.clients, view.samples) == ((0, 2), (40, 2**40))
    assert joined_from_wire(joined_to_wire(joined, 7.0)) == joined
    again = restored(directory, 1.0, weighed=True)
    assert again.standing(0).views == joined.standing.views
    fewer = join(again, 1.0, "anna", samples=30).standing.views[-1].view
    assert (fewer.epoch, fewer.samples) == (view.epoch + 1, (30, 2**40)), "it joined with others"
    assert fewer.digest != view.digest
    with pytest.raises(Refused, match="dora declares no samples; this federation weighs clients"):
        join(again, 1.0, "dora")
    with pytest.raises(Refused, match=r"samples of dora are .*; expected at most"):
        join(again, 1.0, "dora", samples=2**62)
    unweighed = founded(start_with=1)
    assert join(unweighed, 0.0, "anna", samples=40).standing.views[-1].view.samples is None


def test_a_description_says_who_is_here_who_owns_what_and_who_is_next() -> None:
    directory = founded()
    for name in ("anna", "ben", "cleo"):
        join(directory, 0.0, name, max_share=0.7)
    renew(directory, 4.0, "cleo", 1)
    renew(directory, 4.0, "ben", 2)
    description = directory.describe(6.0)
    anna, ben, _ = description.members
    assert (anna.presence, anna.lease_left, anna.round) == ("here", 4.0, 0)
    assert (ben.name, ben.address, ben.lease_left, ben.round, ben.through) == (
        "ben", "ben:7000", 8.0, 2, 4,
    )  # fmt: skip
    assert [(s.size, s.owner, s.heir) for s in description.shards] == [
        (4, 0, 1), (4, 1, 2), (4, 2, 0),
    ]  # fmt: skip
    assert (description.epoch, description.from_round, description.round) == (2, 1, 2)
    directory.tick(10.0)
    directory.leave(10.0, "cleo", "key of cleo")
    later = directory.describe(10.0)
    assert [m.presence for m in later.members] == ["away", "here", "left"]
    assert [(s.owner, s.heir) for s in later.shards] == [(1, -1), (1, -1), (-1, -1)]


@pytest.mark.parametrize(
    "change",
    [
        {"me": 2},
        {"members": ["anna", "ben", "cleo"]},
        {"members": ["anna"]},
        {"members": ["anna", "anna"]},
        {"views": [{"epoch": 2, "from_round": 5, "members": 2, "clients": [7], "owners": [0]}]},
        {"views": [{"epoch": 2, "from_round": 5, "members": 2, "clients": [0], "owners": [-2]}]},
        {"views": [{"epoch": 1, "from_round": 5, "members": 2, "clients": [0], "owners": [0]}] * 2},
        {"views": [{"epoch": 2, "from_round": 5, "members": 2, "clients": [0], "owners": [0],
                    "samples": [1, 2]}]},
        {"views": [{"epoch": 2, "from_round": 5, "members": 2, "clients": [0], "owners": [0],
                    "samples": [2**63]}]},
        {"views": [{"epoch": 1, "from_round": 5, "members": 2, "clients": [0], "owners": [0]},
                   {"epoch": 2, "from_round": 4, "members": 2, "clients": [0], "owners": [0]}]},
    ],
)  # fmt: skip
def test_an_answer_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    directory = founded()
    join(directory, 0.0, "anna")
    message = standing_to_wire(join(directory, 0.0, "ben").standing, 0.0)
    assert standing_from_wire(message).me == 1
    for name in change:
        message.ClearField(name)
    message.MergeFrom(directory_pb2.Standing(**change))
    with pytest.raises(ErisError):
        standing_from_wire(message)
