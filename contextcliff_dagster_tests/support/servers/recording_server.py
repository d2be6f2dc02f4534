"""A server that keeps what it was sent, and answers each path as it is told; with TLS if wanted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

LISTED = wire.head(200) + b'{"data": [{"id": "m"}]}'
ANSWERED = wire.ANSWER + wire.usage(10) + wire.DONE
ABSENT = wire.error(404, "nothing here")
USUAL = {"/models": LISTED, "/completions": ANSWERED}


@dataclass
class Recorder:
    """``replies``: by the end of the path; each may count the requests before it.

    ``seen``: the target and the headers of each request, ``heads`` all that came before bodies.
    """

    replies: Mapping[str, bytes | Callable[[int], bytes]] = field(default_factory=lambda: USUAL)
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    connections: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            target, headers, _ = await wire.read_request(reader)
            path = target.partition("?")[0]
            before = sum(path == earlier.partition("?")[0] for earlier, _ in self.seen)
            self.seen.append((target, headers))
            reply = next((r for end, r in self.replies.items() if path.endswith(end)), ABSENT)
            writer.write(reply(before) if callable(reply) else reply)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextmanager
def recorded(
    replies: Mapping[str, bytes | Callable[[int], bytes]] = USUAL,
    tls: ssl.SSLContext | None = None,
) -> Iterator[tuple[str, Recorder]]:
    """The base URL of such a server, and what it keeps."""
    recorder = Recorder(replies)
    with on_a_thread(recorder.handle, tls=tls) as url:
        yield url, recorder


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """TLS for a server on 127.0.0.1, and the file of its certificate, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context, files[0]
