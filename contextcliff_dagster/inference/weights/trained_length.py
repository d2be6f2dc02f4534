"""The length that a model's weights were trained to."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.weights.files import find_weights
from contextcliff_dagster.inference.weights.gguf_header import gguf_header, trained_window
from contextcliff_dagster.reference.card import REFERENCE_MODELS, load_card, read_card

_ORIGINAL = "original_max_position_embeddings"


def trained_tokens(entry: ModelEntry) -> int | None:
    """Return the tokens that the weights were trained to; None where they do not say.

    A reference model's card says it, other weights' configuration: where their RoPE was scaled to a
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
    scaled = config.get("rope_parameters") or config.get("rope_scaling") or {}
    given = (scaled.get(_ORIGINAL), config.get(_ORIGINAL), config.get("max_position_embeddings"))
    return next(filter(None, map(_count, given)), None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
