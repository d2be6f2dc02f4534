"""Files that no command can use: what is no file at all, and what holds nothing to read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

LONG_NAME = "n" * 5_000


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        folder = os.open(path.parent, os.O_RDONLY)
        try:  # a socket's address is short, a test's folder is not
            bound.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def _sparse(path: Path) -> None:
    """A terabyte that takes no room."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


NO_FILES: Mapping[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": _socket,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "broken link": lambda path: path.symlink_to("nowhere"),
    "circle of links": lambda path: path.symlink_to(path.name),
    "terabyte": _sparse,
}
"""How to make it at a path whose name promises a file."""

UNREADABLE: Mapping[str, bytes] = {
    "empty": b"",
    "binary": bytes(range(256)) * 40,
    "not UTF-8": '{"context": "caf\xe9"}\n'.encode("latin-1"),
    "UTF-16": '{"context": "a"}\n'.encode("utf-16"),
    "deep brackets": b"[" * 100_000 + b"]" * 100_000,
    "deep braces": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}
"""Content that is no table, no study, no policy and no score file."""


def make(kind: str, name: str) -> Callable[[Path], object]:
    """Put a bad file of ``kind`` at ``name`` in a folder."""

    def put(folder: Path) -> None:
        path = folder / name
        if kind in NO_FILES:
            NO_FILES[kind](path)
        else:
            path.write_bytes(UNREADABLE[kind])

    return put


def deep_yaml(levels: int) -> str:
    """A mapping in a mapping, ``levels`` deep."""
    return "a: " + "{a: " * levels + "1" + "}" * levels + "\n"


POLICY = {
    "schema_version": "1.1",
    "model": "m",
    "identity": None,
    "task": None,
    "tokenizer": "reference",
    "tokenizer_sha256": None,
    "safe_cap_tokens": 1_000,
    "cap_prompt_tokens": None,
    "tolerance": 0.3,
    "confidence": 0.95,
    "n": 200,
    "n_documents": 200,
    "date": "2026-01-01",
    "expiry": "2999-01-01",
    "study": "s",
    "campaign": "c",
    "score": "em",
}
"""A policy that `guard` takes."""


def policy(**changes: object) -> str:
    """The policy as a file has it, with some values replaced."""
    return json.dumps({**POLICY, **changes})
