"""A peer's outbox: order, the two queues, and the bound on what it holds."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eris.core.errors import InvalidSetting
from eris.runtimes.grpc.outbox import OVERHEAD, Outbox


def take(outbox: Outbox) -> bytes | None:
    data = outbox.get()
    outbox.sent()
    return data


def test_urgent_messages_overtake_and_each_queue_keeps_its_order() -> None:
    outbox = Outbox(10_000)
    for data, urgent in [(b"1", False), (b"a", True), (b"2", False), (b"b", True)]:
        assert outbox.put(data, urgent=urgent)
    assert [take(outbox) for _ in range(5)] == [b"a", b"b", b"1", b"2", None]


def test_messages_are_not_copied() -> None:
    result = bytes(1000)
    outboxes = [Outbox(10_000) for _ in range(3)]
    assert all(outbox.put(result, urgent=True) for outbox in outboxes)
    assert all(outbox.get() is result for outbox in outboxes)


def test_a_full_queue_refuses_and_leaves_the_other_its_room() -> None:
    outbox = Outbox(1000)
    assert outbox.put(bytes(1000 - OVERHEAD))
    assert not outbox.put(b"")
    assert (outbox.room(), outbox.room(urgent=True)) == (0, 1000 - OVERHEAD)
    assert outbox.put(b"result", urgent=True)


def test_the_message_under_way_still_takes_its_room() -> None:
    outbox = Outbox(1000)
    outbox.put(bytes(600))
    assert outbox.get() == bytes(600)
    assert not outbox.put(bytes(600))
    assert outbox.held
    outbox.sent()
    assert not outbox.held
    assert outbox.put(bytes(600))


def test_a_message_larger_than_a_queue_passes_alone() -> None:
    outbox = Outbox(100)
    assert outbox.put(bytes(5000))
    assert not outbox.put(b"")
    assert take(outbox) == bytes(5000)
    assert outbox.put(b"")
    assert not outbox.put(bytes(5000))


def test_room_is_worth_telling_when_half_of_a_queue_is_free() -> None:
    outbox = Outbox(4 * (100 + OVERHEAD))
    for _ in range(4):
        assert outbox.put(bytes(100))
    told = []
    while outbox.get() is not None:
        told.append(outbox.sent())
    assert told == [False, True, True, True]
    assert not outbox.sent()


def test_tiny_messages_are_bounded_too() -> None:
    outbox = Outbox(10 * OVERHEAD)
    assert sum(outbox.put(b"") for _ in range(1000)) == 10


def test_clearing_counts_what_waited_and_spares_what_is_under_way() -> None:
    outbox = Outbox(1000)
    for data, urgent in [(b"1", False), (b"2", False), (b"a", True)]:
        outbox.put(data, urgent=urgent)
    assert outbox.get() == b"a"
    assert outbox.clear() == 2
    assert outbox.held == 1 + OVERHEAD
    outbox.sent()
    assert (outbox.held, outbox.get()) == (0, None)


def test_a_closed_outbox_takes_no_more_and_gives_what_it_has() -> None:
    outbox = Outbox(1000)
    outbox.put(b"last")
    outbox.close()
    assert not outbox.put(b"late")
    assert outbox.room() == 0
    assert [take(outbox), take(outbox)] == [b"last", None]


@pytest.mark.parametrize("capacities", [(0,), (1, 0)])
def test_an_outbox_without_room_is_refused(capacities: tuple[int, ...]) -> None:
    with pytest.raises(InvalidSetting, match="capacity is 0"):
        Outbox(*capacities)


def test_the_urgent_queue_may_have_a_bound_of_its_own() -> None:
    outbox = Outbox(1000, 3000)
    assert (outbox.room(), outbox.room(urgent=True)) == (1000 - OVERHEAD, 3000 - OVERHEAD)


actions = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 1400), st.booleans()),
    st.tuples(st.sampled_from(["get", "sent", "clear"]), st.just(0), st.just(False)),
)


@given(st.lists(actions, max_size=60))
def test_whatever_happens_it_holds_what_it_took_in_order_and_no_more(
    history: list[tuple[str, int, bool]],
) -> None:
    outbox, queues = Outbox(1000), {False: deque[bytes](), True: deque[bytes]()}
    under_way: tuple[bool, bytes] | None = None

    def cost(urgent: bool) -> int:
        held = [*queues[urgent], *(under_way[1:] if under_way and under_way[0] == urgent else ())]
        return sum(len(data) + OVERHEAD for data in held)

    for number, (action, size, urgent) in enumerate(history):
        if action == "put":
            data = number.to_bytes(1) * size
            fits = not cost(urgent) or cost(urgent) + size + OVERHEAD <= 1000
            assert outbox.put(data, urgent=urgent) == fits
            queues[urgent].extend([data] if fits else [])
        elif action == "get" and under_way is None:
            queue = bool(queues[True])
            expected = queues[queue].popleft() if queues[queue] else None
            assert outbox.get() == expected
            under_way = None if expected is None else (queue, expected)
        elif action == "sent":
            outbox.sent()
            under_way = None
        elif action == "clear":
            assert outbox.clear() == sum(map(len, queues.values()))
            queues = {False: deque(), True: deque()}
        assert outbox.held == cost(False) + cost(True)
        for urgent in (False, True):
            assert outbox.room(urgent=urgent) == max(0, 1000 - cost(urgent) - OVERHEAD)
