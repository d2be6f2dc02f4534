"""Draw the README's first picture: one model on the same filings, question first or last.

Run ``python -m tools.draw_atlas_pair TABLES``, with the tables of docs/results/public/sources.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from contextcliff_dagster.atlas.results import Kept, result_of
from contextcliff_dagster.atlas.series import series_of
from contextcliff_dagster.atlas.sources import load_sources, read_table
from contextcliff_dagster.reporting.figures.report_figure import plot_report

ROOT = Path(__file__).parents[1]


def main(tables: Path) -> None:
    """Write docs/img/financebench.png."""
    source = load_sources(ROOT / "docs" / "results" / "public" / "sources")["financebench"]
    table = read_table(tables / source.table)
    series = [item for item in series_of("financebench", source, table) if not item.few]
    with TemporaryDirectory() as cache:
        results = [result_of(item, Kept(Path(cache))) for item in series]
    labelled = [
        replace(result, model="question first" if "before" in item.condition else "question last")
        for item, result in zip(series, results, strict=True)
        if result is not None
    ]
    (ROOT / "docs" / "img" / "financebench.png").write_bytes(plot_report(labelled[::-1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
