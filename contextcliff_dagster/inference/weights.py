"""Weights on this machine: their location, their hashes, and the contents of a GGUF header.

Format of a GGUF header: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and
3, little-endian). Only scalars are kept; the vocabulary's arrays are skipped.

A relative path in models.yaml starts at that file's folder. A bare name is also looked up where
`make local-model` puts models: ``data/models`` of the checkout, or ``models`` in the store.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from contextcliff_dagster.contracts import EngineError, StoreError, install_command, package_version
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import stable_hash
from contextcliff_dagster.reference.card import REFERENCE_MODELS, load_card, read_card
from contextcliff_dagster.store import PACKAGE, checkout_root, store_root, write_json
from contextcliff_dagster.user_files import open_file

Scalar = int | float | bool | str

GGUF_LIBRARIES = ("torch", "transformers", "gguf", "accelerate")
"""Libraries that transformers needs to read GGUF weights."""

_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_BYTES = 1 << 28


def gguf_header(path: Path) -> dict[str, Scalar]:
    """Return key -> value of the header's scalars, including strings.

    Raises:
        EngineError: the file is not a GGUF file, or it is damaged.
    """
    with _faults_named(path):
        stat = path.stat()
        return dict(_read_once(path, stat.st_size, stat.st_mtime_ns))


def gguf_numbers(path: Path) -> int:
    """Return how many numbers the tensors hold in all; raises as `gguf_header` does."""
    with _faults_named(path), open_file(path) as file:
        _, tensors = _entries(file)
        total = 0
        for _ in range(tensors):
            _string(file)
            (dimensions,) = _unpack(file, "I")
            total += math.prod(_unpack(file, f"{dimensions}Q"))
            _unpack(file, "IQ")  # type and offset
        return total


def trained_window(header: dict[str, Scalar]) -> int | None:
    """Return the trained window in tokens, or None if the header does not give it."""
    tokens = header.get(f"{header.get('general.architecture')}.context_length")
    return tokens if isinstance(tokens, int) and tokens > 0 else None


@contextmanager
def _faults_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror}); check the file.") from error
    except (struct.error, UnicodeDecodeError, ValueError, KeyError) as error:
        raise EngineError(
            f"{path} is damaged or not a GGUF file ({error}); fetch it again, or correct "
            "`weights` in models.yaml."
        ) from error


@cache
def _read_once(path: Path, size: int, changed_ns: int) -> dict[str, Scalar]:
    del size, changed_ns
    with open_file(path) as file:
        values, _ = _entries(file)
        return {key: value for key, value in values.items() if value is not None}


def _entries(file: BinaryIO) -> tuple[dict[str, Scalar | None], int]:
    """Return the header's entries, and the number of tensors described after them."""
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
    """Return a scalar, or None for an array, which is skipped."""
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
    """Return arguments with which transformers loads GGUF weights as plain numbers.

    Newer versions leave them packed if they find kernels for that, so that answers would differ
    between machines.
    """
    try:
        from transformers import GgufConfig
    except ImportError:  # older versions always dequantize
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


LOCAL_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""Weights that `make local-model` fetches (see `tools/fetch_local_model.py`)."""

_PARTS = {
    "weights": "*.safetensors *.bin *.pt *.gguf *.index.json",
    "config": "config.json generation_config.json",
    "tokenizer": "tokenizer.json tokenizer_config.json tokenizer.model special_tokens_map.json "
    "vocab.json merges.txt",
    "chat_template": "chat_template.jinja chat_template.json",
}
_PART = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})\.gguf")
_REMEMBERED_FROM_BYTES = 16 << 20
"""Smallest file whose hash is cached in the store; smaller files are hashed quickly."""


def models_folder() -> Path:
    """Return the folder of fetched models: ``data/models`` of a checkout, else in the store."""
    # Also the package's own checkout: an editable installation works from any folder.
    checkout = checkout_root() or checkout_root(PACKAGE)
    return checkout / "data" / "models" if checkout else store_root() / "models"


def find_weights(entry: ModelEntry) -> Path:
    """Return the file or folder in the entry's ``weights``. Raises EngineError if it is missing."""
    assert entry.weights, "models.yaml is checked for it"
    path = Path(entry.weights).expanduser()
    # For an absolute path, these are all the same.
    for place in (path.absolute(), models_folder() / path, store_root() / "models" / path):
        if place.exists():
            return place
    advice = "put it there, or correct `weights` in models.yaml"
    if path.name == LOCAL_MODEL_FILE:
        advice = "fetch it with `make local-model` in a checkout of the source"
    raise EngineError(
        f"Model {entry.name!r}: its weights {entry.weights} are neither here nor in "
        f"{models_folder()}; {advice}."
    )


def installed_version(distribution: str, entry: ModelEntry, extra: str) -> str:
    """Return a library's version without importing it. Raises EngineError if it is missing."""
    if version := package_version(distribution):
        return version
    raise EngineError(
        f"Model {entry.name!r} runs on {distribution}, which is not installed; "
        f"{install_command(extra)}."
    )


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256, cached until it changes. Raises EngineError if unreadable."""
    try:
        stat = path.stat()
        return _sha256(path.resolve(), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise EngineError(
            f"{path} cannot be read ({error.strerror}); check its permissions."
        ) from error


@cache
def _sha256(path: Path, size: int, changed_ns: int) -> str:
    if size < _REMEMBERED_FROM_BYTES:
        return _hash(path)
    notes = store_root() / "weights.json"
    try:
        noted_hashes = dict(json.loads(notes.read_text(encoding="utf-8")))
        *stamp, digest = noted_hashes.get(str(path), [None])
        if stamp == [size, changed_ns]:
            return str(digest)
    except (OSError, ValueError, TypeError):
        noted_hashes = {}
    digest = _hash(path)
    with suppress(StoreError):  # only a cache: if it cannot be written, hash again
        write_json(notes, {**noted_hashes, str(path): [size, changed_ns, digest]})
    return digest


def gguf_parts(path: Path) -> list[Path]:
    """Return the files of a GGUF model, given its first: one file, or ``...-00001-of-0000N.gguf``
    and the following ones, which llama.cpp loads with it.

    Raises:
        EngineError: the path is not the first part, or a part is missing.
    """
    if (part := _PART.fullmatch(path.name)) is None:
        return [path]
    stem, count = part["stem"], int(part["count"])
    parts = [path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    if path != parts[0]:
        raise EngineError(
            f"{path} is one of {count} parts of a model; give the first, {parts[0].name}, in "
            "`weights` of models.yaml."
        )
    if missing := [part.name for part in parts if not part.is_file()]:
        raise EngineError(
            f"{path} is the first of {count} parts of a model, and {', '.join(missing)} is "
            "missing next to it; fetch the missing parts."
        )
    return parts


def gguf_sha256(path: Path) -> str:
    """Return the hash of a GGUF model's single file, or of the hashes of all its parts."""
    hashes = [file_sha256(part) for part in gguf_parts(path)]
    return hashes[0] if len(hashes) == 1 else stable_hash(hashes)


def folder_hashes(folder: Path) -> dict[str, str]:
    """Return the hashes of a Hugging Face folder: ``weights_sha256``, ``config_sha256``, ..."""
    digests: dict[str, str] = {}
    for part, patterns in _PARTS.items():
        files = sorted({path for pattern in patterns.split() for path in folder.glob(pattern)})
        if files:
            hashes = {path.name: file_sha256(path) for path in files}
            digests[f"{part}_sha256"] = stable_hash(hashes)
    return digests


def _hash(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_ORIGINAL = "original_max_position_embeddings"


def trained_tokens(entry: ModelEntry) -> int | None:
    """Return the length in tokens to which the weights were trained, or None if unknown.

    A reference model's card gives it, as does other weights' configuration: if RoPE was scaled to a
    longer window, the length before that.
    """
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, EngineError):
        if not entry.weights:
            name = str(entry.model_id)
            return load_card(name).training_length_tokens if name in REFERENCE_MODELS else None
        path = find_weights(entry)
        return _of_gguf(path) if path.is_file() else _of_folder(path)
    return None


def _of_gguf(path: Path) -> int | None:
    header = gguf_header(path)
    key = f"{header.get('general.architecture')}.rope.scaling.original_context_length"
    return _count(header.get(key)) or trained_window(header)


def _of_folder(path: Path) -> int | None:
    if (path / "card.json").is_file():
        return read_card(path).training_length_tokens
    config: dict[str, Any] = json.loads((path / "config.json").read_text("utf-8"))
    config = config.get("text_config") or config
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    limits = (scaling.get(_ORIGINAL), config.get(_ORIGINAL), config.get("max_position_embeddings"))
    return next(filter(None, map(_count, limits)), None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
