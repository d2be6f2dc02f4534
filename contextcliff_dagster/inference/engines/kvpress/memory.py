"""Memory of a worker of engine `kvpress`, by the shape of its weights, before it starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.attention import (
    CacheShape,
    config_shape,
    gguf_shape,
)
from contextcliff_dagster.inference.engines.kvpress.engine import (
    DISK_VARIABLE,
    KEPT_BYTES,
    disk_bytes,
    kvpress_weights,
)
from contextcliff_dagster.inference.engines.transformers import dtype_of
from contextcliff_dagster.inference.models.kv_variants import kv_of
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.weights import gguf_header, gguf_numbers

LIBRARY_BYTES = 600_000_000
"""Of a worker without weights: Python, torch, transformers and kvpress."""
_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


class KvMemory(NamedTuple):
    """Most that a worker takes, in bytes.

    ``memory``: weights, libraries and documents that are kept included; ``longest``: the cache of
    the longest document; ``disk``: of all documents, for further policies and workers.
    """

    memory: int
    longest: int
    disk: int


class _Weights(NamedTuple):
    shape: CacheShape
    bytes: int
    hidden: int
    inner: int
    number_bytes: int


def kv_memory(entry: ModelEntry, documents: Iterable[int]) -> KvMemory | None:
    """Return the memory for reading documents of these tokens; None where weights do not say.

    Raises:
        EngineError: the weights are missing or damaged.
    """
    lengths = sorted(documents)
    weights = _weights(entry)
    if not lengths or weights is None:
        return None
    token = weights.shape.token_bytes(*2 * [f"float{8 * weights.number_bytes}"])
    assert token is not None
    # Scores of h2o and of expected attention, an entry and head each, are kept with the entries.
    kept = round(token) + 2 * 4 * weights.shape.layers * weights.shape.heads
    longest, total = kept * lengths[-1], kept * sum(lengths)
    reading = lengths[-1] * weights.number_bytes * (8 * weights.hidden + 3 * weights.inner)
    pressed = round(token) * lengths[-1]
    held = max(longest, min(KEPT_BYTES, total))
    memory = LIBRARY_BYTES + weights.bytes + held + longest + pressed + reading
    return KvMemory(memory, round(token) * lengths[-1], min(disk_bytes(), total))


class KvReads:
    """Documents that models of engine `kvpress` will read, and the memory for them.

    Variants of one base share their reads; `h2o` reads once more, for its scores.
    """

    def __init__(self) -> None:
        self._entries: dict[str, ModelEntry] = {}
        self._tokens: dict[str, dict[str, int]] = {}
        self._scored: set[tuple[str, str]] = set()

    def add(self, entry: ModelEntry, document: str, tokens: int) -> bool:
        """Note a call on a document of ``tokens``; False where it has been read before."""
        if entry.engine != "kvpress":
            return True
        variant = kv_of(entry)
        base = variant.base if variant else entry.name
        self._entries.setdefault(base, entry)
        counts = self._tokens.setdefault(base, {})
        new = document not in counts
        counts[document] = tokens
        if variant and variant.policy == "h2o":
            new = (base, document) not in self._scored
            self._scored.add((base, document))
        return new

    def notes(self) -> list[str]:
        """A sentence on memory and disk for each base whose weights give their size."""
        notes = []
        for base, entry in self._entries.items():
            lengths = self._tokens[base].values()
            needed = None
            with suppress(EngineError):  # measuring says what is the matter
                needed = kv_memory(entry, lengths)
            if needed is not None:
                notes.append(
                    f"{base} on kvpress takes up to about {_size(needed.memory)} of memory, "
                    f"{_size(needed.longest)} of it for the whole cache of the longest document "
                    f"({max(lengths):,} tokens), and up to {_size(needed.disk)} of disk for what "
                    f"was read ({DISK_VARIABLE})."
                )
        return notes


def _size(count: int) -> str:
    return (
        f"{count / 1e9:.1f} GB" if count >= 950_000_000 else f"{float(f'{count / 1e6:.2g}'):g} MB"
    )


def _weights(entry: ModelEntry) -> _Weights | None:
    entry, path = kvpress_weights(entry)
    number_bytes = _SIZES[dtype_of(entry, path)]
    if path.is_file():
        header = gguf_header(path)
        kind = header.get("general.architecture")
        shape = gguf_shape(header)
        hidden, inner = (
            header.get(f"{kind}.{name}") for name in ("embedding_length", "feed_forward_length")
        )
        # Dequantized in 32 bits, all of them, before they have the type that is computed in.
        stored = gguf_numbers(path) * (4 + number_bytes)
    else:
        try:
            config: dict[str, Any] = json.loads((path / "config.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        shape = config_shape(config)
        hidden, inner = config.get("hidden_size"), config.get("intermediate_size")
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        stored = _stored_bytes(path) * number_bytes // _SIZES.get(dtype, number_bytes)
    if shape is None or not isinstance(hidden, int) or not isinstance(inner, int):
        return None
    return _Weights(shape, stored, hidden, inner, number_bytes)


def _stored_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
