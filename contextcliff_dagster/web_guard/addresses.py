"""Where a server listens, and which Host and Origin headers are its own."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from contextcliff_dagster.contracts import EngineError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
_WRITTEN = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]\\,]+)(?::([0-9]{1,5}))?", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}

Address = tuple[str, int | None]
"""A host in lower case (an IPv6 address without brackets), and its port where one is written."""


def read_address(written: str) -> Address | None:
    """``name``, ``name:port``, ``[::1]:port``; None where it is neither."""
    match = _WRITTEN.fullmatch(written)
    if match is None:
        return None
    host = match[1].lower()
    if host.startswith("["):
        if not _is_ip(host[1:-1]):
            return None
        host = str(ip_address(host[1:-1]))
    return host, int(match[2]) if match[2] else None


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``."""
    return host.lower() in _LOOPBACK or (_is_ip(host) and ip_address(host).is_loopback)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names by which browsers may call a server.

    A page of another site whose name was made to point at this machine (DNS rebinding) sends that
    name as Host. It cannot send an IP address, so a server that listens everywhere takes them all.

    Args:
        bound: the host that the server listens on.
        more: further ones, ``name`` or ``name:port``, as a proxy in front of the server has them.
    """

    bound: str
    more: tuple[str, ...] = ()

    def accept_host(self, header: str) -> bool:
        """Whether a Host header names this server; its port may be a forwarded one."""
        address = read_address(header)
        if address is None:
            return False
        host = address[0]
        if host in {a[0] for a in self._more()}:
            return True
        if self.bound in _EVERYWHERE:
            return host in _LOOPBACK or _is_ip(host)
        own = self.bound.lower()
        return host == own or (is_loopback(own) and host in _LOOPBACK)

    def accept_origin(self, origin: str, host_header: str) -> bool:
        """Whether the page that asks came from this server: same host and port, not only same
        site, which takes every server of this machine for one."""
        scheme, _, written = origin.partition("://")
        address, called = read_address(written), read_address(host_header)
        default = _DEFAULT_PORTS.get(scheme.lower())
        if default is None or address is None or called is None:
            return False
        page = (address[0], address[1] or default)
        own = [called, *(a for a in self._more() if a[0] == address[0])]
        return any(page == (host, port or default) for host, port in own)

    def _more(self) -> Iterable[Address]:
        return (a for a in map(read_address, self.more) if a is not None)


def url_of(host: str, port: int) -> str:
    """An address to open in a browser on this machine."""
    if host in _EVERYWHERE:
        host = "[::1]" if host == "::" else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{port}"


def listen_on(host: str, ports: Iterable[int]) -> socket.socket:
    """A socket that listens on the first free one of ``ports``; 0 is any free one.

    It listens at once, so that no other process can take the same port.

    Raises:
        EngineError: none is free, or there is no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    port = 0
    for port in ports:
        try:
            return socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EngineError(
                    f"Port {port} of {host} cannot be used ({error.strerror}); choose another with "
                    "--port or --host."
                ) from error
    raise EngineError(f"Port {port} of {host} is taken; choose another with --port.")
