"""`contextcliff` on the command line: a thin door to the same assets the Dagster UI shows.

Belongs here: arguments, exit codes, the progress bar, the confirmation before money is spent,
sentences for people. Does not belong here: measuring, scoring, analysing, writing results; the
commands call `defs.run` and the rooms, and own nothing of what those do.

Nothing heavy is imported before a command needs it: `contextcliff models` answers without Dagster.
"""

from __future__ import annotations

from contextcliff_dagster.cli.app import main

__all__ = ["main"]
