"""As much of Ray as the engine uses, in this process; whatever is passed on is a copy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any


class Reference:
    """A value that is or will be there, or why it never will."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value, self.error = value, error


class Call:
    def __init__(self, call: Callable[..., Any], returns: int = 1) -> None:
        self._call, self._returns = call, returns

    def options(self, num_returns: int) -> Call:
        return Call(self._call, num_returns)

    def remote(self, *arguments: Any) -> Any:
        """Runs at once; an argument that failed is what this call fails with, as in Ray."""
        failed = [a.error for a in arguments if isinstance(a, Reference) and a.error]
        try:
            if failed:
                raise failed[0]
            value = self._call(*(deepcopy(_plain(argument)) for argument in arguments))
        except Exception as error:
            made = [Reference(error=error) for _ in range(self._returns)]
        else:
            values = [value] if self._returns == 1 else value
            assert len(values) == self._returns
            made = [Reference(deepcopy(one)) for one in values]
        return made[0] if self._returns == 1 else made


class Handle:
    def __init__(self, actor: Any) -> None:
        self.actor, self.killed = actor, False

    def __getattr__(self, name: str) -> Call:
        assert not self.killed
        return Call(getattr(self.actor, name))


class NearRay:
    """The module's functions."""

    def __init__(self, cores: int = 2) -> None:
        self.cores, self.up = cores, False
        self.handles: list[Handle] = []

    def is_initialized(self) -> bool:
        return self.up

    def init(self, **options: Any) -> None:
        self.up = True

    def shutdown(self) -> None:
        self.up = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores)}

    def put(self, value: Any) -> Reference:
        return Reference(deepcopy(value))

    def get(self, references: Any) -> Any:
        if isinstance(references, list):
            return [self.get(reference) for reference in references]
        if references.error is not None:
            raise references.error
        return references.value

    def wait(self, references: list[Reference], num_returns: int) -> None:
        """Waits, and says nothing of errors."""

    def remote(self, kind: type) -> Any:
        return type("Remote", (), {"remote": staticmethod(partial(self._start, kind))})

    def kill(self, handle: Handle) -> None:
        handle.killed = True

    def _start(self, kind: type, *arguments: Any) -> Handle:
        handle = Handle(kind(*(deepcopy(_plain(argument)) for argument in arguments)))
        self.handles.append(handle)
        return handle


def _plain(argument: Any) -> Any:
    return argument.value if isinstance(argument, Reference) else argument
