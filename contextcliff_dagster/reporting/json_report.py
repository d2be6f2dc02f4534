"""The report for machines: every model's result, the map from bins to tokens, and versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import SCHEMA_VERSION
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.reporting.wording.sentences import comparison, labels

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.contracts.results.fields import BinResult


def machine_report(
    cliffs: Sequence[Cliffs], *, title: str, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """One object of plain JSON values.

    ``models``: the results as they are in ``cliffs.json``. ``quantile_to_tokens``: per model and
    bin the token edges, ``[min, median, max]`` tokens and the number of samples, so that a reader
    can check which documents a statement rests on. ``created_at``: that of the newest result; no
    clock is read here.
    """
    created = [result.created_at for result in cliffs]
    return {
        "schema_version": SCHEMA_VERSION,
        "created_at": max(created, default=None),
        "title": title,
        "notes": list(notes),
        "comparison": comparison(cliffs) or None,
        "quantile_to_tokens": [
            {
                "label": label,
                "model": result.model,
                "campaign": result.campaign,
                "tokenizer": result.tokenizer,
                "bins": [_bin_tokens(item) for item in result.bins],
            }
            for label, result in zip(labels(cliffs), cliffs, strict=True)
        ],
        "versions": renderer_versions(),
        "models": to_json(cliffs),
    }


def _bin_tokens(item: BinResult) -> dict[str, Any]:
    return {
        "bin": item.bin,
        "token_range": [item.edge_low, item.edge_high],
        "min_median_max_tokens": [
            item.min_tokens,
            item.median_tokens,
            item.max_tokens,
        ],
        "n_samples": item.n,
        "n_documents": item.n_documents,
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
