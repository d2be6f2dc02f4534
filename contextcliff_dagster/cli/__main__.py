"""`python -m contextcliff_dagster.cli`: the command line without the console script."""

from __future__ import annotations

import sys

from contextcliff_dagster.cli import main

if __name__ == "__main__":
    sys.exit(main())
