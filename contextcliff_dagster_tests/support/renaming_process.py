"""A renaming in a process of its own, to be killed.

``python -m contextcliff_dagster_tests.support.renaming_process OLD NEW N`` renames study OLD in the
store of the environment, and dies by SIGKILL before its N-th change of a file or of the ledger;
with fewer changes it ends, and prints how many there were.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contextcliff_dagster.archive.rename import rename_study
from contextcliff_dagster.experiments.lookup import experiment_tables
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.support.forked_process import ForkedProcess


def renamed_until(old: str, new: str, change: int) -> tuple[int, str]:
    """Exit code and output of a renaming that dies before a change of this number."""
    name = "contextcliff_dagster_tests.support.renaming_process"
    process = ForkedProcess(
        [sys.executable, "-m", name, old, new, str(change)],
        env=os.environ.copy(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=120)
    return process.returncode, out or err


def main() -> None:
    old, new, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
    changes = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal changes
            changes += 1
            if changes == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return changed

    for owner, name in ((Path, "replace"), (Path, "rename"), (Path, "unlink"), (Ledger, "write")):
        setattr(owner, name, counted(getattr(owner, name)))
    rename_study(Store.default(), old, new, tables=experiment_tables())
    print(changes)


if __name__ == "__main__":
    main()
