"""A peer's messages to be sent: two queues, bounded in bytes, without I/O."""

from __future__ import annotations

from collections import deque

from eris.core.errors import InvalidSetting

OVERHEAD = 64
"""What a message counts beside its own bytes, so that many tiny ones are bounded, too."""


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
        # Each is a pair: of the ordinary queue, and of the urgent one.
        self._capacity = capacity, capacity if urgent_capacity is None else urgent_capacity
        for given in self._capacity:
            if given < 1:
                raise InvalidSetting("capacity", given, "at least 1 byte")
        self._waiting: tuple[deque[bytes], deque[bytes]] = deque(), deque()
        self._held = [0, 0]
        self._under_way: tuple[bool, bytes] | None = None
        self.closed = False

    def put(self, data: bytes, *, urgent: bool = False) -> bool:
        """Queue a message if it fits; False if its queue is full or the outbox is closed.

        One larger than the whole queue needs it empty.
        """
        held = self._held[urgent] + len(data) + OVERHEAD
        if self.closed or (self._held[urgent] and held > self._capacity[urgent]):
            return False
        self._waiting[urgent].append(data)
        self._held[urgent] = held
        return True

    def get(self) -> bytes | None:
        """The next message, which is then under way until :meth:`sent`; None if nothing waits."""
        assert self._under_way is None, "one message at a time"
        urgent = bool(self._waiting[True])
        if not self._waiting[urgent]:
            return None
        self._under_way = urgent, self._waiting[urgent].popleft()
        return self._under_way[1]

    def sent(self) -> bool:
        """The message under way has left, or is lost: its room is free again.

        Says whether its queue is now at most half full, so that it is worth waking who waits: once
        for many messages, not for each.
        """
        if self._under_way is None:
            return False
        urgent, data = self._under_way
        self._held[urgent] -= len(data) + OVERHEAD
        self._under_way = None
        return 2 * self._held[urgent] <= self._capacity[urgent]

    def room(self, *, urgent: bool = False) -> int:
        """The largest message that is sure to fit in a queue."""
        free = self._capacity[urgent] - self._held[urgent] - OVERHEAD
        return 0 if self.closed else max(0, free)

    def clear(self) -> int:
        """Throw away what waits; says how many messages."""
        count = sum(map(len, self._waiting))
        for urgent, waiting in enumerate(self._waiting):
            self._held[urgent] -= sum(len(data) + OVERHEAD for data in waiting)
            waiting.clear()
        return count

    def close(self) -> None:
        """Take no more messages; those that wait can still be got."""
        self.closed = True

    @property
    def held(self) -> int:
        """Bytes that wait or are under way, with :data:`OVERHEAD` for each message."""
        return sum(self._held)
