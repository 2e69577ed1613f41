"""User code in a thread of its own, which never keeps a node from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

NAME = "user code"
Given = ParamSpec("Given")
Made = TypeVar("Made")


async def in_thread(work: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs) -> Made:
    """What ``work`` returns or raises. Whoever stops waiting leaves it to run for nothing.

    An executor's threads would be waited for at the end of the process, and a round of training
    may take hours.

    >>> asyncio.run(in_thread(sum, [1, 2, 3]))
    6
    """
    return await asyncio.wrap_future(started(NAME, lambda: work(*args, **kwargs)))


def started(name: str, work: Callable[[], Made]) -> Future[Made]:
    """What ``work`` will have returned or raised, in a thread that nobody waits for at the end."""
    done: Future[Made] = Future()
    done.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            # A future takes no StopIteration, and nobody's training code may end the process.
            harmless = isinstance(error, Exception) and not isinstance(error, StopIteration)
            done.set_exception(error if harmless else RuntimeError(f"it raised {error!r}"))

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def at_work() -> bool:
    """Whether user code still runs."""
    return any(thread.name == NAME for thread in threading.enumerate())


async def written(write: Callable[..., None], *args: object) -> None:
    """Write in a thread and wait for it, also when cancelled: two may not write one file."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *args))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing})
        raise
