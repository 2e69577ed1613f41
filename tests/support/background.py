"""Processes as a script starts them in its background: with interrupts ignored."""

from __future__ import annotations

IGNORING = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""What a command is run under; it inherits what the shell ignores."""
