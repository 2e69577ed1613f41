"""``eris ca``: the federation's certificate authority, and the certificates of its members."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from eris.cli.output import JsonOption, output
from eris.experiments.figures import say

app = typer.Typer(
    help="""The certificates by which members know each other.

One person holds the authority of a federation and hands every member its three files. No node needs
the authority to run: keep its folder offline.

\b
eris ca init ca --federation hospitals
eris ca issue clinic-1 --ca ca
eris ca show ca
""",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Argument(help="The authority's folder.")]


@app.command("init")
def init(
    folder: Folder,
    federation: Annotated[str, typer.Option(help="Name of the federation, for people to read.")],
    days: Annotated[int, typer.Option(help="How long the authority is valid.")] = 3650,
) -> None:
    """Make a federation's authority: once, by one person.

    Whoever has ca.key can make members; whoever loses it can make no more, and renew none. Keep the
    folder offline, with a copy in a safe place.

    \b
    eris ca init ca --federation hospitals
    """
    from eris.runtimes.grpc.tls import create_authority

    create_authority(folder, federation, days=days)
    say(
        f"The authority of {federation!r} is in {folder}.",
        "  ca.key  stays here, offline: whoever has it can make members",
        "  ca.pem  is no secret; every member gets it with its certificate",
        f"Next: eris ca issue NAME --ca {shlex.quote(str(folder))}",
    )


@app.command("issue")
def issue(
    name: Annotated[
        str, typer.Argument(help='The member: 1 to 63 characters of a-z, 0-9 and "-".')
    ],
    ca: Annotated[Path, typer.Option(help="The authority's folder.")] = Path("ca"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="An IP address or host name to put into the certificate as well, for other tools; "
            "members check each other's names, whatever the address. Repeat for several."
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate is valid.")] = 825,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; NAME in the authority's folder if left out."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Sign a member's key again; give --host again, too.")
    ] = False,
    party: Annotated[
        str | None,
        typer.Option(
            help="Whose the member is, for an organisation that has several: of one party nobody "
            "is owner and helper, or two helpers, of a shard. A renewal keeps it."
        ),
    ] = None,
) -> None:
    """Make a member's key and certificate, or renew its certificate.

    A name is issued once, for it is what members know each other by. A renewal keeps the key, by
    which the federation recognises the member; the old NAME.pem is enough for it.

    \b
    eris ca issue clinic-1 --ca ca
    eris ca issue clinic-1 --ca ca --renew
    eris ca issue ward-1 --ca ca --party "City Hospital"
    """
    from eris.runtimes.grpc import tls

    made = tls.issue(ca, name, hosts=host or (), days=days, out=out, renew=renew, party=party)
    files, until = made.identity, f"{made.record.not_after:%Y-%m-%d}"
    place = files.certificate.parent
    in_place = (place / "node.toml").exists()
    if renew and not made.new_key:
        say(
            f"{name} has a new certificate, until {until}; its key is the same.",
            f"{files.certificate} is where the node reads it: start the node again."
            if in_place
            else f"Copy {files.certificate} into the node's folder and start the node again.",
        )
        return
    say(
        f"{name} has a certificate until {until}. "
        + (
            f"The node's folder, {place}, now has all three files; leave them there:"
            if in_place
            else "Move into the node's folder, over a safe way:"
        ),
        f"  {files.certificate}  who the node is",
        f"  {files.key}  its secret (mode 600), of which there is no copy",
        f"  {files.authority}  whom it trusts",
        f"{ca / 'ca.key'} goes nowhere.",
    )
    if renew:
        say(
            f"Warning: neither {files.key.name} nor {files.certificate.name} was in "
            f"{files.certificate.parent}, so this is a new key. A directory that knows {name} by "
            "its old key will refuse it; if the old key is not lost, renew with --out and the "
            "folder that has it."
        )


@app.command("clients-key")
def clients_key(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("clients.key"),
    key_bits: Annotated[
        int, typer.Option(help="Bits of n: 3072 (128 bits of security), 2048 (112), 256 (none).")
    ] = 3072,
) -> None:
    """Make the private key that all clients have in common, for the method sefl.

    Every client opens what others send to the server by it, and so does the server with any one of
    them. Give the file to clients alone, over a safe way, and keep no copy.

    \b
    eris ca clients-key clients.key
    """
    from eris.methods.sefl import SEFL
    from eris.runtimes.grpc import clients_key as keys

    SEFL(key_bits=key_bits)
    pair = keys.drawn(key_bits)
    keys.write(out, pair)
    say(
        f"{out} is the clients' common key (mode 600): for every client, never for the server.",
        f'  tls.clients_key = "{out.name}"  in the node.toml of every client',
        "  federation.method_options, at all members, has its public half:",
        f'  {{ key_bits = {key_bits}, public_key = "{keys.public_key(pair)}" }}',
    )


@app.command("show")
def show(folder: Folder, as_json: JsonOption = False) -> None:
    """List the members' certificates, and when they end.

    \b
    eris ca show ca
    eris ca show ca --json
    """
    from eris.runtimes.grpc import pem, tls

    now, records = datetime.now(UTC), tls.issued(folder)
    authority = pem.certificates(folder / "ca.pem")[0]
    words = (Column(heading, overflow="fold") for heading in ("member", "party"))
    table = Table(*words, "valid until", "left", "key (SHA-256 begins)")
    newest = {each.name: each for each in records}.values()
    for record in newest:
        left = record.not_after - now
        remaining = pem.span(left) if left > timedelta(0) else "expired"
        if left < tls.RENEW_WITHIN:
            remaining += ", renew"
        party, end = escape(record.party or "its own"), pem.stamp(record.not_after)
        table.add_row(record.name, party, end, remaining, record.fingerprint[:16])
    whose, until = authority.subject.rfc4514_string(), authority.not_valid_after_utc
    with output(as_json) as figures:
        Console(highlight=False).print(table)
        say(f"Authority {whose}, until {pem.stamp(until)}.")
        members = [
            {"name": one.name, "party": one.party, "not_after": one.not_after.isoformat(),
             "key_sha256": one.fingerprint}
            for one in newest
        ]  # fmt: skip
        told = {"name": whose, "not_after": until.isoformat()}
        figures({"authority": told, "members": members})
