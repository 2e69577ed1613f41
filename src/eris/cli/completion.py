"""What a shell offers after Tab: names of runs, methods and data sets."""

from __future__ import annotations

from collections.abc import Callable

from eris.core.errors import ErisError


def _beginning(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Names that begin as what was typed; a shell is told nothing of what cannot be read."""

    def offered(incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except (ErisError, OSError):
            return []

    return offered


def _runs() -> list[str]:
    from eris.experiments.runs.store import Run, all_runs, kept_runs

    return [run.name for run in all_runs(kept_runs()) if isinstance(run, Run)]


def _methods() -> list[str]:
    from eris.methods.registry import METHODS

    return list(METHODS)


def _data() -> list[str]:
    from eris.data import NAMES

    return list(NAMES)


runs = _beginning(_runs)
methods = _beginning(_methods)
data = _beginning(_data)
