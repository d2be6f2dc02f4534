"""An endpoint that is particular about parameters, thinks, and lists windows as OpenRouter does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from contextcliff_dagster_tests.support.servers import faulty_server as wire


class Particular:
    """Refuses parameters one after the other, and has a list of models with its windows."""

    def __init__(self, refused: tuple[str, ...] = (), reasoning: int = 0) -> None:
        self.refused, self.reasoning = refused, reasoning
        self.paths: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, headers, data = await wire.read_request(reader)
        self.paths.append(path)
        body: dict[str, Any] = json.loads(data) if data else {}
        wrong = next((name for name in self.refused if name in body), None)
        if path == "/v1/models" and wire.key_of(headers) == "for-chat-only":
            writer.write(wire.error(401, "x-api-key header is required"))
        elif path == "/v1/models":
            listed = {"data": [{"id": "m", "context_length": 131072}, {"id": "n"}]}
            writer.write(wire.head(200) + json.dumps(listed).encode())
        elif not path.endswith("/completions"):
            writer.write(wire.error(404, "Not Found"))
        elif not body:
            writer.write(wire.error(400, "messages: Field required"))
        elif wrong:
            writer.write(wire.error(400, f"Unsupported parameter: '{wrong}'", param=wrong))
        else:
            details = {"reasoning_tokens": self.reasoning}
            used = wire.usage(10, 60, completion_tokens_details=details)
            writer.write(wire.ANSWER + used + wire.DONE)
        await writer.drain()
        writer.close()
