"""`python -m contextcliff_dagster.cli`: the command line without the console script."""

from __future__ import annotations

from contextcliff_dagster.cli import console_script

if __name__ == "__main__":
    console_script()
