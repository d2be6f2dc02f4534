"""An endpoint that knows the right answer to each prompt and gives a wrong one when it is bid to.

Every request is a line in ``log`` before it is answered, so that what was paid can be counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster_tests.support.servers import faulty_server as wire
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread

WRONG = "none of it"
TEMPLATE_TOKENS = 4


def fingerprint(contents: tuple[str, ...]) -> str:
    """Of a prompt: the texts of its messages, one after the other."""
    return hashlib.sha256("".join(contents).encode()).hexdigest()


class PlannedServer:
    """Answers by ``answers`` (`fingerprint` of a prompt -> right answer), each after ``delay_s``.

    ``worse``: every answer is `WRONG` while it is true.
    """

    def __init__(self, log: Path, delay_s: float) -> None:
        self.answers: Mapping[str, str] = {}
        self.worse = False
        self.url = ""
        self._delay_s = delay_s
        self._log = log.open("a", buffering=1)
        self._count = open_tokenizer("reference").count

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, _, body = await wire.read_request(reader)
            if not path.endswith("/chat/completions"):
                writer.write(wire.error(404, "no list here"))
                return
            contents = tuple(m["content"] for m in json.loads(body)["messages"])
            prompt, tokens = fingerprint(contents), self._count("".join(contents)) + TEMPLATE_TOKENS
            text = WRONG if self.worse else self.answers.get(prompt, WRONG)
            self._log.write(json.dumps({"prompt": prompt, "right": text != WRONG}) + "\n")
            await asyncio.sleep(self._delay_s)
            answer = wire.chunk("", role="assistant") + wire.chunk(text)
            writer.write(
                wire.STREAM + answer + wire.chunk(None, "stop") + wire.usage(tokens) + wire.DONE
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextmanager
def planned_server(log: Path, delay_s: float) -> Iterator[PlannedServer]:
    """A running `PlannedServer`; its ``url`` ends in ``/v1``."""
    server = PlannedServer(log, delay_s)
    with on_a_thread(server.handle) as url:
        server.url = url
        yield server
