"""Write contextcliff_dagster/atlas/known.json, what `atlas show` knows, of docs/results/public."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextcliff_dagster.atlas.sources import load_sources

ROOT = Path(__file__).parents[1]
PUBLIC = ROOT / "docs" / "results" / "public"
SUMMARY = ROOT / "contextcliff_dagster" / "atlas" / "known.json"
GATHERED = "2026-11-27"
_KEPT = (
    "model", "source", "task", "condition", "unit", "natural", "verdict", "safe_cap", "midpoint",
    "baseline", "lengths", "n", "n_documents",
)  # fmt: skip


def summary() -> str:
    """The series of the atlas, their sources' names and citations, and when they were gathered."""
    sources = load_sources(PUBLIC / "sources")
    series: list[dict[str, Any]] = json.loads((PUBLIC / "atlas.json").read_text())["series"]
    rows = [json.dumps([one[key] for key in _KEPT], ensure_ascii=False) for one in series]
    head = {
        "gathered": GATHERED,
        "sources": {name: [one.name, one.citation] for name, one in sources.items()},
        "aliases": {name: of for one in sources.values() for name, of in one.aliases.items()},
        "windows": {
            one.model(name): most for one in sources.values() for name, most in one.windows.items()
        },
        "keys": _KEPT,
    }
    opening = json.dumps(head, ensure_ascii=False).removesuffix("}")
    return opening + ', "series": [\n' + ",\n".join(rows) + "\n]}\n"


if __name__ == "__main__":
    SUMMARY.write_text(summary(), encoding="utf-8")
