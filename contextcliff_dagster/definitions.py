"""The code location: every study's assets and jobs, what they are handed, and who runs them."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """One Definitions object, readable top to bottom."""
    from contextcliff_dagster.defs.executors import chosen_executor
    from contextcliff_dagster.defs.resources import default_resources

    return dg.Definitions.merge(
        # defs/studies.py: studies/*.yaml -> one asset group each, with its jobs
        # defs/database.py: contextcliff.duckdb over all of them
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        dg.Definitions(
            resources=default_resources(),
            executor=chosen_executor(),
        ),
    )
