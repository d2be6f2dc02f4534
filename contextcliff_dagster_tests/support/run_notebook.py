"""Run the notebook of docs/ as Jupyter does, and write its outputs into it.

    python -m contextcliff_dagster_tests.support.run_notebook [docs/quickstart.ipynb]

The store is a temporary one, so that everything is measured. Without what differs from one run to
the next: times, identifiers, progress.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from contextcliff_dagster_tests.support.paths import DOCS

NOTEBOOK = DOCS / "quickstart.ipynb"


def executed(path: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in ``folder``.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    env = {"CONTEXTCLIFF_HOME": str(folder / "store"), "IPYTHONDIR": str(folder / "ipython")}
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    with mock.patch.dict(os.environ, env):
        client.execute()
    for cell in notebook.cells:
        cell.outputs = [o for o in cell.get("outputs", ()) if o.get("name") != "stderr"]
        if cell.cell_type != "code":
            del cell["outputs"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> None:
    import nbformat

    path = Path(sys.argv[1]) if len(sys.argv) > 1 else NOTEBOOK
    with TemporaryDirectory() as folder:
        nbformat.write(executed(path, Path(folder)), path)


if __name__ == "__main__":
    main()
