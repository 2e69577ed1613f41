"""Help as it is shown: paragraphs flow to the terminal's width, and examples stay lines."""

from __future__ import annotations

import inspect

import typer

EXAMPLES = "\b"
"""Begins a paragraph whose lines are kept."""


def flowing(text: str) -> str:
    r"""A docstring with its paragraphs in one line each, and its examples as they are.

    >>> flowing('''Do it.
    ...
    ... Long words that were broken
    ... for the source.
    ...
    ... \b
    ... eris do it
    ... eris do more''')
    'Do it.\n\nLong words that were broken for the source.\n\neris do it\neris do more'
    """
    found = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith(EXAMPLES):
            found.append(paragraph.removeprefix(EXAMPLES).strip("\n"))
        else:
            found.append(" ".join(paragraph.split()))
    return "\n\n".join(found)


def let_help_flow(app: typer.Typer) -> None:
    """Let the help of all commands and groups of an application flow."""
    for command in app.registered_commands:
        command.help = flowing(command.help or getattr(command.callback, "__doc__", None) or "")
    for one in (app.info, app.registered_callback):
        if one is not None and isinstance(one.help, str):
            one.help = flowing(one.help)
    called = app.registered_callback
    if called is not None and not isinstance(called.help, str) and called.callback is not None:
        called.help = flowing(called.callback.__doc__ or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_help_flow(group.typer_instance)
