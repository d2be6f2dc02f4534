"""An endpoint that tells everybody what it was sent, headers and address and all.

Run as a module with a JSON object, and prints its base URL: as `unreliable_server`, and ``script``,
a file with the names of the behaviours that the next completion requests meet in turn, over and
over; read anew for each request. The behaviour ``models`` refuses the list of models.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.unreliable_server import UnreliableServer

STATUS = {"401": 401, "403": 403, "404": 404, "400": 400, "422": 422, "429": 429, "500": 500}


def echo(target: str, headers: dict[str, str]) -> str:
    """What was sent, as it came and decoded."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind == "Basic":
        given += f" alias {base64.b64decode(given).decode()}"
    others = {name: value for name, value in headers.items() if name.startswith("x-")}
    return f"not with {kind} {given} {given} {json.dumps(others)} at {target} {unquote(target)}"


class EchoingServer(UnreliableServer):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.script = Path(options["script"])
        self.served = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target, headers, body = await wire.read_request(reader)
            said = echo(target, headers)
            script = self.script.read_text().split()
            path = target.partition("?")[0]
            if path.endswith("/chat/completions"):
                what = script[self.served % len(script)]
                self.served += 1
                if what == "ok":
                    await self.complete(json.loads(body), "", writer)
                else:
                    misbehave(what, said, writer)
            else:
                writer.write(wire.error(401 if script == ["models"] else 404, said))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def misbehave(what: str, said: str, writer: asyncio.StreamWriter) -> None:
    """Send ``said`` in one of the shapes that servers send errors in."""
    if what in STATUS:
        writer.write(wire.error(STATUS[what], said))
    elif what == "quota":
        writer.write(wire.error(429, said, "insufficient_quota"))
    elif what == "parameter":
        writer.write(wire.error(400, f"temperature is not supported: {said}"))
    elif what == "overflow":
        writer.write(wire.error(400, f"maximum context length exceeded: {said}"))
    elif what == "text":
        writer.write(wire.head(500, "text/plain") + said.encode())
    elif what == "json_in_text":
        writer.write(wire.head(502) + json.dumps({"detail": [json.dumps({"got": said})]}).encode())
    elif what == "redirect":
        to = said.replace(" ", "_")
        writer.write(wire.head(307, extra=f"Location: http://elsewhere/{to}\r\n"))
    elif what == "in_stream":
        begun = wire.STREAM + wire.chunk("93")
        writer.write(begun + wire.event({"error": {"message": said}}))
    else:
        assert what == "html_stream", what
        writer.write(wire.STREAM + b"data: <html>" + said.encode() + b"\n\n")


async def main() -> None:
    handle = EchoingServer(json.loads(sys.argv[1])).handle
    server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=1 << 24)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
