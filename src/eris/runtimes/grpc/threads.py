"""User code in a thread of its own, which never keeps a node from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

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
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Made] = loop.create_future()

    def tell(settle: Callable[[Any], None], what: object) -> None:
        if not done.done():
            settle(what)

    def run() -> None:
        settle: Callable[[Any], None] = done.set_result
        what: object
        try:
            what = work(*args, **kwargs)
        except BaseException as error:
            # A future takes no StopIteration, and nobody's training code may end the process.
            harmless = isinstance(error, Exception) and not isinstance(error, StopIteration)
            settle, what = (
                done.set_exception,
                error if harmless else RuntimeError(f"it raised {error!r}"),
            )
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, settle, what)

    threading.Thread(target=run, name=NAME, daemon=True).start()
    return await done


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
