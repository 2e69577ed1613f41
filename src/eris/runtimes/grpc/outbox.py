"""A peer's messages to be sent: two queues, bounded in bytes, without I/O."""

from __future__ import annotations

from collections import deque

from eris.core.errors import InvalidSetting

OVERHEAD = 64
"""What a message counts beside its own bytes, so that many tiny ones are bounded, too."""


class BoundedQueue:
    """Messages first in, first out, that hold at most ``capacity`` bytes."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InvalidSetting("capacity", capacity, "at least 1 byte")
        self.capacity = capacity
        self.held = 0
        self._waiting: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """The largest message that is sure to fit."""
        return max(0, self.capacity - self.held - OVERHEAD)

    def put(self, data: bytes) -> bool:
        """Queue a message if it fits; one larger than the whole queue needs it empty."""
        held = self.held + len(data) + OVERHEAD
        if self.held and held > self.capacity:
            return False
        self._waiting.append(data)
        self.held = held
        return True

    def get(self) -> bytes:
        """The oldest message; it is held until :meth:`release`."""
        return self._waiting.popleft()

    def release(self, data: bytes) -> None:
        """Give back the room of a message that :meth:`get` gave out."""
        self.held -= len(data) + OVERHEAD

    def clear(self) -> int:
        """Throw away what waits; says how many messages."""
        count = len(self._waiting)
        while self._waiting:
            self.release(self._waiting.popleft())
        return count


class Outbox:
    """What waits for one peer: urgent messages (results) before the others (contributions).

    Each queue holds ``capacity`` bytes at most (the urgent one ``urgent_capacity``, if given), with
    the message under way, so contributions never keep a result out. A message larger than that
    passes alone. Messages are kept as they are: a result that goes to every peer is one object in
    all outboxes.

    >>> outbox = Outbox(capacity=300)
    >>> outbox.put(b"contribution"), outbox.put(b"result", urgent=True)
    (True, True)
    >>> outbox.get()
    b'result'
    >>> outbox.sent()
    True
    >>> outbox.room(), outbox.put(bytes(161)), outbox.put(bytes(160))
    (160, False, True)
    """

    def __init__(self, capacity: int, urgent_capacity: int | None = None) -> None:
        self._ordinary = BoundedQueue(capacity)
        self._urgent = BoundedQueue(capacity if urgent_capacity is None else urgent_capacity)
        self._under_way: tuple[BoundedQueue, bytes] | None = None
        self.closed = False

    def put(self, data: bytes, *, urgent: bool = False) -> bool:
        """Queue a message; False if its queue is full or the outbox is closed."""
        return not self.closed and self._queue(urgent).put(data)

    def get(self) -> bytes | None:
        """The next message, which is then under way until :meth:`sent`; None if nothing waits."""
        assert self._under_way is None, "one message at a time"
        queue = self._urgent if self._urgent else self._ordinary
        if not queue:
            return None
        self._under_way = queue, queue.get()
        return self._under_way[1]

    def sent(self) -> bool:
        """The message under way has left, or is lost: its room is free again.

        Says whether its queue is now at most half full, so that it is worth waking who waits: once
        for many messages, not for each.
        """
        if self._under_way is None:
            return False
        queue, data = self._under_way
        queue.release(data)
        self._under_way = None
        return 2 * queue.held <= queue.capacity

    def room(self, *, urgent: bool = False) -> int:
        """The largest message that is sure to fit in a queue."""
        return 0 if self.closed else self._queue(urgent).room

    def clear(self) -> int:
        """Throw away what waits; says how many messages."""
        return self._urgent.clear() + self._ordinary.clear()

    def close(self) -> None:
        """Take no more messages; those that wait can still be got."""
        self.closed = True

    @property
    def held(self) -> int:
        """Bytes that wait or are under way, with :data:`OVERHEAD` for each message."""
        return self._urgent.held + self._ordinary.held

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self.held

    def _queue(self, urgent: bool) -> BoundedQueue:
        return self._urgent if urgent else self._ordinary
