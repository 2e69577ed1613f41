"""Addresses as people write them: ``host:port``, an IPv6 host in brackets."""

from __future__ import annotations

import ipaddress
import re

from eris.core.errors import InvalidSetting

LONGEST = 255
"""Characters; a host name has at most 253."""
LOOPBACK = "127.0.0.1"

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ENDPOINT = re.compile(
    rf"(\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>{_LABEL}(\.{_LABEL})*))?:(?P<port>[0-9]{{1,5}})"
)


def endpoint(
    text: str, name: str = "address", *, host: str | None = None, any_port: bool = False
) -> tuple[str, int]:
    """Host and port of an address.

    ``host`` is taken where the text has a port alone; ``any_port`` allows 0, "whichever is free".

    >>> endpoint("[::1]:7400"), endpoint(":9464", host="127.0.0.1")
    (('::1', 7400), ('127.0.0.1', 9464))
    >>> endpoint("clinic.example.org", "node.address")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: node.address is 'clinic.example.org'; expected host:port, \
such as clinic.example.org:7400 or [2001:db8::7]:7400
    """
    found = _ENDPOINT.fullmatch(text) if len(text) <= LONGEST else None
    given = found and (found["host"] or found["six"] or host)
    six = found and found["six"]
    if found is None or not given or (six and not isinstance(ip(six), ipaddress.IPv6Address)):
        expected = "host:port, such as clinic.example.org:7400 or [2001:db8::7]:7400"
        raise InvalidSetting(name, text, expected)
    port = int(found["port"])
    if not (0 if any_port else 1) <= port <= 65535:
        also = ", or 0 for any that is free" if any_port else ""
        raise InvalidSetting(name, text, f"a port from 1 to 65535{also}")
    return given, port


def dialled(text: str, name: str = "address", *, any_port: bool = False) -> tuple[str, int]:
    """Host and port of an address that others dial, so not one for all of a machine's.

    >>> dialled("0.0.0.0:7400", "node.address")
    Traceback (most recent call last):
    ...
    eris.core.errors.InvalidSetting: node.address is '0.0.0.0:7400'; expected host:port that other \
members can dial; this host means "all addresses of this machine"
    """
    host, port = endpoint(text, name, any_port=any_port)
    if everywhere(host):
        meant = 'this host means "all addresses of this machine"'
        raise InvalidSetting(name, text, f"host:port that other members can dial; {meant}")
    return host, port


def written(host: str, port: int) -> str:
    """The address in one piece.

    >>> written("::1", 7400), written("anna", 7400)
    ('[::1]:7400', 'anna:7400')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def everywhere(host: str) -> bool:
    """Whether a host stands for all addresses of this machine, so that nobody can dial it.

    >>> everywhere("0.0.0.0"), everywhere("::"), everywhere("anna")
    (True, True, False)
    """
    found = ip(host)
    return found is not None and found.is_unspecified


def ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a host is; a name is none."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
