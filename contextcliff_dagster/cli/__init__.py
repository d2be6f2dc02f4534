"""The `contextcliff` command line: a thin interface to the assets that the Dagster UI shows.

Belongs here: arguments, exit codes, the progress bar, the confirmation before money is spent, and
messages for users. Does not belong here: measuring, scoring, analysing and writing results, for
which the commands call `run.study` and the other packages.

Heavy modules are imported only when needed: `contextcliff models` runs without Dagster.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from contextcliff_dagster.cli.shell import end_process, set_up_process, sign_of_life


def console_script() -> NoReturn:
    """Run the command line of this process, and end the process with its exit code."""
    set_up_process()
    end_process(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    Args:
        argv: the arguments without the program's name; ``sys.argv[1:]`` when None.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    with sign_of_life(args):
        try:
            from contextcliff_dagster.cli.app import run
        except KeyboardInterrupt:
            return 130
        return run(args)
