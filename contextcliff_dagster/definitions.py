"""The code location: every study's assets and jobs, what they are handed, and who runs them.

Written out rather than collected by ``load_from_defs_folder``, which wraps the sentence about a
misspelt study file into a tree of modules.
"""

import dagster as dg

from contextcliff_dagster.defs.alerts.failed_runs import failed_runs_sensor
from contextcliff_dagster.defs.broken_studies import broken_study_asset
from contextcliff_dagster.defs.database import database_asset
from contextcliff_dagster.defs.executors.choice import chosen_executor
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.studies import StudyParts, is_in_use, study_parts
from contextcliff_dagster.defs.ui.token_ranges import with_token_ranges
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import BrokenStudy, Study, read_studies


@dg.definitions
def defs() -> dg.Definitions:
    """One Definitions object, read when the code location loads.

    A study that cannot be loaded is an asset that fails with the reason; the others go on. Shipped
    examples that nobody has used are left out (`is_in_use`).
    """
    studies, broken = read_studies()
    store = Store.default()
    parts: list[StudyParts] = []
    loaded: list[Study] = []
    for study in studies.values():
        if not is_in_use(study, store):
            continue
        try:
            made = study_parts(study)
            parts.append(made._replace(assets=with_token_ranges(made.assets, study, store)))
            loaded.append(study)
        except Exception as error:  # a schedule that Dagster refuses, a prompt file that is gone
            broken.append(BrokenStudy(study.name, study.folder, f"Study {study.name!r}: {error}"))
    return dg.Definitions(
        assets=[
            *(asset for part in parts for asset in part.assets),
            *(broken_study_asset(one, number) for number, one in enumerate(broken)),
            database_asset(loaded),
        ],
        jobs=[job for part in parts for job in part.jobs],
        schedules=[schedule for part in parts for schedule in part.schedules],
        sensors=[
            *(sensor for part in parts for sensor in part.sensors),
            failed_runs_sensor(loaded),
        ],
        resources=default_resources(),
        executor=chosen_executor(),
    )
