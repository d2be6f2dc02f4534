"""The notebook of docs/ runs as Jupyter runs it, and shows what it shows."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path
from typing import Any

from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.run_notebook import NOTEBOOK, executed

PAGE = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CELLS = [cell for cell in PAGE["cells"] if cell["cell_type"] == "code"]


def shown(cells: list[Any]) -> list[list[tuple[str, ...]]]:
    """For each cell the kinds of its outputs, and their text without its numbers."""
    return [
        [
            (*sorted(output.get("data", {})), *re.findall(r"[a-z]{3,}", text_of(output)))
            for output in cell["outputs"]
        ]
        for cell in cells
    ]


def text_of(output: Any) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return text if isinstance(text, str) else "".join(text)


def test_its_outputs_are_there_and_name_no_machine() -> None:
    kinds = {kind for cell in shown(CELLS) for output in cell for kind in output}
    assert {"text/html", "image/png"} <= kinds
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    text = NOTEBOOK.read_text(encoding="utf-8")
    for private in (str(Path.home()), str(CHECKOUT), "/tmp/", "/home/", "/Users/"):
        assert private not in text
    assert not re.search(rf"\b{getpass.getuser()}@", text)
    assert len(text) < 500_000


def test_it_runs_and_shows_the_same(tmp_path: Path) -> None:
    run = executed(NOTEBOOK, tmp_path)
    again = [cell for cell in run.cells if cell.cell_type == "code"]
    assert shown(again) == shown(CELLS)
    assert (tmp_path / "store" / "quick").is_dir()
