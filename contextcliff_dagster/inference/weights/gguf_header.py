"""What a GGUF file says about itself in its header: architecture, trained window, quantisation.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
Only scalars are kept; the vocabulary's arrays are skipped over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.user_files import open_file

Scalar = int | float | bool | str

GGUF_LIBRARIES = ("torch", "transformers", "gguf", "accelerate")
"""What transformers reads GGUF weights with."""

_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_BYTES = 1 << 28


def gguf_header(path: Path) -> dict[str, Scalar]:
    """Key -> value of the header's scalars, strings among them.

    Raises:
        EngineError: it is not a GGUF file, or a damaged one.
    """
    with _faults_named(path):
        stat = path.stat()
        return dict(_read_once(path, stat.st_size, stat.st_mtime_ns))


def gguf_numbers(path: Path) -> int:
    """Numbers of all tensors together, however many bits each takes; raises like `gguf_header`."""
    with _faults_named(path), open_file(path) as file:
        _, tensors = _entries(file)
        total = 0
        for _ in range(tensors):
            _string(file)
            (dimensions,) = _unpack(file, "I")
            total += math.prod(_unpack(file, f"{dimensions}Q"))
            _unpack(file, "IQ")  # its type, and where it lies
        return total


def trained_window(header: dict[str, Scalar]) -> int | None:
    """Tokens that the model was trained to, or None where the header does not say."""
    tokens = header.get(f"{header.get('general.architecture')}.context_length")
    return tokens if isinstance(tokens, int) and tokens > 0 else None


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror}); check it.") from error
    except (struct.error, UnicodeDecodeError, ValueError, KeyError) as error:
        raise EngineError(
            f"{path} is not a GGUF file, or a damaged one ({error}); fetch it again, or correct "
            "`weights` in models.yaml."
        ) from error


@cache
def _read_once(path: Path, size: int, changed_ns: int) -> dict[str, Scalar]:
    del size, changed_ns
    with open_file(path) as file:
        values, _ = _entries(file)
        return {key: value for key, value in values.items() if value is not None}


def _entries(file: BinaryIO) -> tuple[dict[str, Scalar | None], int]:
    """The header's entries, and how many tensors are described after them."""
    if file.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version, tensors, entries = _unpack(file, "IQQ")
    if version not in (2, 3):
        raise ValueError(f"version {version}")
    return {_string(file): _value(file, _unpack(file, "I")[0]) for _ in range(entries)}, tensors


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack("<" + layout, file.read(struct.calcsize("<" + layout)))


def _string(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > _LONGEST_BYTES:
        raise ValueError(f"a text of {length} bytes")
    return file.read(length).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Scalar | None:
    """A scalar; None for an array, which is skipped over."""
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _unpack(file, _FIXED[kind])[0]
    kind, length = _unpack(file, "IQ")
    if kind in _FIXED:
        file.seek(length * struct.calcsize("<" + _FIXED[kind]), 1)
    elif length > _LONGEST_BYTES:
        raise ValueError(f"an array of {length}")
    else:
        for _ in range(length):
            if kind == _STRING:
                file.seek(_unpack(file, "Q")[0], 1)
            else:
                _value(file, kind)
    return None


def dequantizing_options() -> dict[str, Any]:
    """Arguments by which transformers loads a GGUF file's weights as plain numbers.

    Newer versions leave them packed where they find kernels for that, and answer otherwise on
    another machine.
    """
    try:
        from transformers import GgufConfig
    except ImportError:  # it knows no other way
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}
