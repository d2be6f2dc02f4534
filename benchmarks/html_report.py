"""Size and cost of report.html: three models with 1,000 examples each, without and with answers.

    python benchmarks/html_report.py [--libraries]

`--libraries` bundles and minifies what chart libraries would need for the same picture (npm and
esbuild, from the registry that npm is set to), next to our own scripts as they are in the page.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pandas as pd

from contextcliff_dagster.redaction import secrets_of, without_secrets
from contextcliff_dagster.reporting.html.payload import profile_page
from contextcliff_dagster.reporting.html.render import Interactive
from contextcliff_dagster.reporting.length_profile.page import report_page
from contextcliff_dagster_tests.support.records.answer_tables import answered, evidence_of

ASSETS = Path(__file__).resolve().parents[1] / "contextcliff_dagster/reporting/html/assets"
PER_BIN = 100
LIBRARIES = {
    "uplot@1.6.32": "import uPlot from 'uplot'; new uPlot({series: [{}, {}]}, [[], []]);",
    "chart.js@4.6.1": (
        "import {Chart, LineController, LineElement, PointElement, LogarithmicScale, LinearScale, "
        "Tooltip, Filler, ScatterController} from 'chart.js'; Chart.register(LineController, "
        "LineElement, PointElement, LogarithmicScale, LinearScale, Tooltip, Filler, "
        "ScatterController); new Chart(document.body, {type: 'line', data: {datasets: []}});"
    ),
    "@observablehq/plot@0.6.17": (
        "import * as Plot from '@observablehq/plot'; Plot.plot({marks: [Plot.areaY([], {}), "
        "Plot.line([], {}), Plot.dot([], {}), Plot.ruleX([], {})]});"
    ),
    "vega-lite@6.4.3": "import embed from 'vega-embed'; embed(document.body, {mark: 'line'});",
}


def pages() -> None:
    """Print the page's size and the cost of building it, after imports."""
    texts = {"short": None, "5,000 characters": lambda i: "word " * 1_000}
    redact = partial(without_secrets, secrets=secrets_of(os.environ))
    for name, text in texts.items():
        made = [answered(m, text, seed=i, per_bin=PER_BIN) for i, m in enumerate(("a", "b", "c"))]
        results = [result for result, *_ in made]
        records = pd.concat([one for _, one, _ in made], ignore_index=True)
        for with_answers in (False, True):
            evidence = evidence_of(made, with_answers=with_answers)._replace(records=records)
            cost = []
            for _ in range(3):
                start = time.process_time()
                page = report_page(results, title="t")
                html = profile_page(
                    results, page, evidence, title="t", pictures={}, redact=redact
                ).encode()
                cost.append(time.process_time() - start)
            said = f"with answers ({name})" if with_answers else "numbers alone"
            print(f"{said:32} {len(html):>9,} bytes {min(cost):6.3f} CPU s")


def libraries() -> None:
    """Return the bytes of each library, bundled and minified."""
    ours = b"".join(
        (ASSETS / name).read_bytes() for name in ("page.js", *Interactive(None).scripts)
    )
    print(f"{'ours, as they are':32} {len(ours):>9,} bytes {len(gzip.compress(ours)):>9,} gzip")
    with TemporaryDirectory() as name:
        folder = Path(name)
        packages = [*LIBRARIES, "vega@6.4.0", "vega-embed", "esbuild"]
        quiet = {"cwd": folder, "check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(["npm", "init", "-y"], **quiet)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *packages], **quiet)
        for library, use in LIBRARIES.items():
            (folder / "use.js").write_text(use)
            command = ["npx", "esbuild", "use.js", "--bundle", "--minify", "--format=iife"]
            made = subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout
            print(f"{library:32} {len(made):>9,} bytes {len(gzip.compress(made)):>9,} gzip")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", action="store_true", help="measure chart libraries, too")
    asked = parser.parse_args()
    pages()
    if asked.libraries:
        libraries()
