"""How a command ends, for scripts that call it: docs/commands.md has the table."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""It was begun and did not go well: training failed, nodes differ, nobody answers."""
REFUSED = 2
"""Nothing was done: an option, a setting, a file or a missing library was refused."""
INTERRUPTED = 130
"""Ctrl-C; what can go on later says how."""
