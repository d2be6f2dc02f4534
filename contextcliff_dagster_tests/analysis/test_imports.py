"""The analysis stays cheap to import and blind to everything but records."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import contextcliff_dagster.analysis


def test_importing_the_analysis_costs_no_heavy_library() -> None:
    code = (
        "import sys; import contextcliff_dagster.analysis.profile; "
        "print([m for m in ('pandas', 'scipy', 'pyarrow', 'matplotlib', 'dagster', 'torch') "
        "if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_analysis_knows_no_model_and_no_file() -> None:
    folder = Path(contextcliff_dagster.analysis.__file__).parent
    modules = sorted(folder.rglob("*.py"))
    assert len(modules) > 20
    for module in modules:
        text = module.read_text("utf-8")
        for foreign in (
            r"contextcliff_dagster\.reference",
            r"contextcliff_dagster\.inference",
            r"\bopen\(",
        ):
            assert not re.search(foreign, text), f"{module.name} uses {foreign}"
