"""Write contextcliff_dagster/atlas/known.json, used by `atlas show`, from docs/results/public."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contextcliff_dagster.atlas.sources import load_sources

ROOT = Path(__file__).parents[1]
PUBLIC = ROOT / "docs" / "results" / "public"
SUMMARY = ROOT / "contextcliff_dagster" / "atlas" / "known.json"
GATHERED = "2026-11-27"
_KEYS = (
    "model", "source", "task", "condition", "unit", "natural", "verdict", "safe_cap", "midpoint",
    "baseline", "lengths", "n", "n_documents",
)  # fmt: skip


def summary() -> str:
    """Return known.json's text: the atlas's series, their sources, and the date of collection."""
    sources = load_sources(PUBLIC / "sources")
    series: list[dict[str, Any]] = json.loads((PUBLIC / "atlas.json").read_text())["series"]
    rows = [json.dumps([row[key] for key in _KEYS], ensure_ascii=False) for row in series]
    head = {
        "gathered": GATHERED,
        "sources": {name: [item.name, item.citation] for name, item in sources.items()},
        "aliases": {name: of for item in sources.values() for name, of in item.aliases.items()},
        "windows": {
            one.model(name): most for one in sources.values() for name, most in one.windows.items()
        },
        "keys": _KEYS,
    }
    opening = json.dumps(head, ensure_ascii=False).removesuffix("}")
    return opening + ', "series": [\n' + ",\n".join(rows) + "\n]}\n"


if __name__ == "__main__":
    SUMMARY.write_text(summary(), encoding="utf-8")
