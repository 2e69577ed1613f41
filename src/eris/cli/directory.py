"""``eris directory``: look after the ledger of a federation's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eris.core.errors import ErisError
from eris.experiments.figures import say

app = typer.Typer(
    help="""The directory's ledger, at the member that hosts it.

The ledger says who may have published what. Members keep marks of it: one that was lost, or that is
older than what a member has seen, is refused, for rounds might get second results.

\b
eris directory backup ledger.copy --from anna/node.toml
""",
    no_args_is_help=True,
)


@app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="Where the copy goes; must not exist.")],
    source: Annotated[
        Path,
        typer.Option("--from", help="node.toml of the member that hosts it, or the ledger itself."),
    ] = Path("node.toml"),
) -> None:
    """Copy the ledger at any moment, also while the node runs.

    The copy is whole and one file (mode 600: it holds the ledger's secret). Copying
    directory.sqlite by other means misses what is still in directory.sqlite-wal.

    It can take the ledger's place as long as the directory has decided nothing since: stop the
    node, copy, move it to another machine, start it there. A copy that has been overtaken is
    refused as soon as a member shows that it knows more; then put the newest back.

    \b
    eris directory backup ledger.copy --from anna/node.toml
    # to put it back, with the node stopped:
    rm anna/state/directory.sqlite*
    cp ledger.copy anna/state/directory.sqlite
    """
    from eris.runtimes.grpc import ledger

    path = _ledger(source)
    revision = ledger.backup(path, file)
    say(
        f"{file} is {path} at revision {revision}. It can take its place until the directory "
        "decides anything more."
    )


def _ledger(source: Path) -> Path:
    """The ledger that a node's settings lead to, or that a path is."""
    from eris.runtimes.grpc.parts import DIRECTORY_FILE
    from eris.runtimes.grpc.settings import NodeSettings

    if source.suffix != ".toml":
        return source
    settings = NodeSettings.load(source)
    if not settings.membership.host_directory:
        host = settings.membership.directory_name or "nobody: the federation has a roster"
        raise ErisError(f"{source} hosts no directory; its host is {host}")
    return settings.node.folder / DIRECTORY_FILE
