"""Messages from a worker process to its parent: lengths, a header, bytes.

A hostile file may control a worker, so messages are plain data (no pickle), and lengths are checked
before anything is stored.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

_LENGTHS = struct.Struct("<IQ")
_HEADER_MAX = 1_000_000
_PIECE = 1 << 20

Message = tuple[dict[str, Any], bytes]


class GarbledError(Exception):
    """Raised if the bytes received are not a valid worker message."""


def write_message(descriptor: int, header: dict[str, Any], body: bytes = b"") -> None:
    """Write a whole message, waiting for a slow reader. Raises OSError if the reader is gone."""
    packed = json.dumps(header).encode()
    for part in (_LENGTHS.pack(len(packed), len(body)) + packed, body):
        remaining = memoryview(part)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]


class MessageReader:
    """Reader of messages from a non-blocking descriptor, one piece at a time."""

    def __init__(self, descriptor: int, body_max: float) -> None:
        self._descriptor = descriptor
        self._body_max = body_max
        self._buffer = bytearray()
        self.ended = False

    def read(self) -> Message | None:
        """Return the next message if it is complete. Sets `ended` once the other end is closed.

        Raises:
            GarbledError: the bytes are not a message.
        """
        while not self.ended:
            if (message := self._parsed()) is not None:
                return message
            try:
                piece = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                return None
            self.ended = not piece
            self._buffer += piece
        return None

    def _parsed(self) -> Message | None:
        buffer = self._buffer
        if len(buffer) < _LENGTHS.size:
            return None
        n_header, n_body = _LENGTHS.unpack_from(buffer)
        if n_header > _HEADER_MAX or n_body > self._body_max:
            raise GarbledError
        start = _LENGTHS.size + n_header
        if len(buffer) < start + n_body:
            return None
        try:
            header = json.loads(buffer[_LENGTHS.size : start])
        except ValueError as error:
            raise GarbledError from error
        if not isinstance(header, dict):
            raise GarbledError
        body = bytes(memoryview(buffer)[start : start + n_body])
        del buffer[: start + n_body]
        return header, body
