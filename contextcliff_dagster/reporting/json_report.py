"""The report for machines: every model's result, the map from bins to tokens, and versions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contextcliff_dagster.contracts import SCHEMA_VERSION
from contextcliff_dagster.reporting.wording.sentences import comparison, labels, parts


def machine_report(
    cliffs: Sequence[Mapping[str, Any]], *, title: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """One object of plain JSON values (a NaN becomes null).

    ``models``: the results as they are in ``cliffs.json``. ``quantile_to_tokens``: per model and
    bin the token edges, ``[min, median, max]`` tokens and the number of samples, so that a reader
    can check which documents a statement rests on. ``created_at``: that of the newest result; no
    clock is read here.
    """
    created = [str(c["created_at"]) for c in cliffs if c.get("created_at")]
    report = {
        "schema_version": SCHEMA_VERSION,
        "created_at": max(created, default=None),
        "title": title,
        "notes": list(notes),
        "comparison": comparison(cliffs) or None,
        "quantile_to_tokens": [
            {
                "label": label,
                "model": result.get("model"),
                "campaign": result.get("campaign"),
                "tokenizer": result.get("tokenizer"),
                "bins": [_bin_tokens(item) for item in parts(result, "bins")],
            }
            for label, result in zip(labels(cliffs), cliffs, strict=True)
        ],
        "versions": renderer_versions(),
        "models": list(cliffs),
    }
    return {key: plain_values(value) for key, value in report.items()}


def _bin_tokens(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bin": item.get("bin"),
        "token_range": [item.get("edge_low"), item.get("edge_high")],
        "min_median_max_tokens": [
            item.get("min_tokens"),
            item.get("median_tokens"),
            item.get("max_tokens"),
        ],
        "n_samples": item.get("n"),
        "n_documents": item.get("n_documents"),
    }


def renderer_versions() -> dict[str, str | None]:
    """Versions of what rendered the report; a result's provenance has those of the measurement."""
    from importlib import metadata

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return {
        name: version(name) for name in ("contextcliff-dagster", "matplotlib", "numpy", "pillow")
    }


def plain_values(value: Any) -> Any:
    """``value`` with NumPy scalars unwrapped and what is not finite as null: strict JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
