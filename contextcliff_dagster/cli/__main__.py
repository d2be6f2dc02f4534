"""`python -m contextcliff_dagster.cli`: the command line without the console script."""

from contextcliff_dagster.cli import console_script

if __name__ == "__main__":
    console_script()
