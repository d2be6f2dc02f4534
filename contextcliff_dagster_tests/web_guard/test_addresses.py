"""Which Host and Origin headers are a server's own."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.web_guard import (
    AllowedHosts,
    is_loopback,
    listen_on,
    read_address,
    url_of,
)

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]{1,10}){0,3}", fullmatch=True)
PORTS = st.integers(1, 65535)
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@given(NAMES, PORTS)
def test_no_name_but_its_own_calls_a_server_of_this_machine(name: str, port: int) -> None:
    """DNS rebinding: the name is the attacker's, the address behind it is ours."""
    for bound in ("127.0.0.1", "::1", "0.0.0.0", "::", "192.168.1.5"):
        if name != "localhost":
            assert not AllowedHosts(bound).accept_host(f"{name}:{port}")
            assert not AllowedHosts(bound).accept_host(name)


@given(st.ip_addresses(), PORTS)
def test_only_a_server_that_listens_everywhere_takes_every_address(
    address: object, port: int
) -> None:
    written = f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"
    assert AllowedHosts("0.0.0.0").accept_host(written)
    assert AllowedHosts("127.0.0.1").accept_host(written) == (str(address) in ("127.0.0.1", "::1"))


@pytest.mark.parametrize("bound", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "127.0.0.2"])
def test_loopback_has_three_names(bound: str) -> None:
    for name in LOOPBACK:
        assert AllowedHosts(bound).accept_host(f"{name}:3000")
        assert AllowedHosts(bound).accept_host(name.upper())


@pytest.mark.parametrize(
    "header",
    ["", ":3000", "localhost:", "localhost:3000:1", "localhost, evil.example", "evil@localhost",
     "localhost.", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "::1", "[evil]",
     "localhost:3000/evil", "localhost#", " localhost", "0x7f.1", "2130706433", "[::1%25lo]"],
)  # fmt: skip
def test_what_is_no_name_of_it_is_refused(header: str) -> None:
    assert not AllowedHosts("127.0.0.1").accept_host(header)


@given(NAMES, NAMES, PORTS, PORTS)
def test_a_page_is_the_servers_own_if_host_and_port_are_those_it_was_called_by(
    page: str, called: str, page_port: int, called_port: int
) -> None:
    hosts = AllowedHosts("127.0.0.1")
    same = (page, page_port) == (called, called_port)
    host, origin = f"{called}:{called_port}", f"http://{page}:{page_port}"
    assert hosts.accept_origin(origin, host) == same
    assert hosts.accept_origin(f"http://{host}", host)


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://localhost:3000", "localhost:3000", True),
        ("http://LOCALHOST:3000", "localhost:3000", True),
        ("http://[::1]:3000", "[::1]:3000", True),
        ("http://[0:0:0:0:0:0:0:1]:3000", "[::1]:3000", True),
        ("http://localhost", "localhost", True),
        ("http://localhost", "localhost:80", True),
        ("https://localhost", "localhost", True),
        ("http://localhost:3001", "localhost:3000", False),
        ("http://127.0.0.1:3000", "localhost:3000", False),
        ("http://localhost", "localhost:3000", False),
        ("null", "localhost:3000", False),
        ("", "localhost:3000", False),
        ("file://", "localhost:3000", False),
        ("chrome-extension://localhost:3000", "localhost:3000", False),
        ("http://localhost:3000.evil.example", "localhost:3000", False),
        ("http://localhost:3000@evil.example", "localhost:3000", False),
        ("http://localhost:3000/evil", "localhost:3000", False),
        ("http://localhost:3000 http://evil.example", "localhost:3000", False),
        ("http://[::1", "[::1]:3000", False),
    ],
)
def test_origins(origin: str, host: str, own: bool) -> None:
    assert AllowedHosts("127.0.0.1").accept_origin(origin, host) == own


def test_a_name_is_allowed_by_option_with_or_without_a_port() -> None:
    hosts = AllowedHosts("127.0.0.1", ("ui.example.org", "Gate.example.org:8443"))
    for header in ("ui.example.org", "UI.example.org:3000", "gate.example.org:8443"):
        assert hosts.accept_host(header)
    # The proxy passes on its own Host, or ours.
    for host in ("ui.example.org", "127.0.0.1:3000"):
        assert hosts.accept_origin("https://ui.example.org", host)
        assert hosts.accept_origin("https://gate.example.org:8443", host)
        assert not hosts.accept_origin("https://ui.example.org:444", host)
        assert not hosts.accept_origin("https://other.example.org", host)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    address = read_address(text)
    assert address is None or address[0]
    hosts = AllowedHosts("127.0.0.1")
    assert hosts.accept_host(text) == (
        address is not None and address[0] in ("localhost", "127.0.0.1", "::1")
    )
    assert not hosts.accept_origin(text, "localhost:1") or text.lower() == "http://localhost:1"


def test_who_reaches_a_server() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.0.1", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "", "192.168.1.5", "gpu-box")))


def test_the_printed_address_can_be_opened() -> None:
    assert url_of("::1", 3000) == "http://[::1]:3000"
    assert url_of("0.0.0.0", 3000) == "http://127.0.0.1:3000"
    assert url_of("::", 3000) == "http://[::1]:3000"
    assert url_of("gpu-box", 1) == "http://gpu-box:1"


def test_two_that_start_at_once_take_two_ports() -> None:
    with listen_on("127.0.0.1", [0]) as first:
        port = first.getsockname()[1]
        with listen_on("127.0.0.1", range(port, 65536)) as second:
            assert second.getsockname()[1] > port
        with pytest.raises(EngineError, match=f"{port}.* is taken"):
            listen_on("127.0.0.1", [port])


def test_a_host_of_another_machine_is_one_sentence() -> None:
    # Of the addresses reserved for documentation: no machine has it.
    with pytest.raises(EngineError, match=r"192\.0\.2\.1"):
        listen_on("192.0.2.1", range(3000, 65536))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_listens_on_ipv6() -> None:
    with listen_on("::1", [0]) as listener:
        assert listener.getsockname()[0] == "::1"
