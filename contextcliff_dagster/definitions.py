"""The code location: the assets and jobs of every study, their resources and the executor.

Listed explicitly rather than collected by ``load_from_defs_folder``, which would bury the error
message about a misspelt study file in a module traceback.
"""

from contextcliff_dagster.freed_memory import collect_garbage_rarely

collect_garbage_rarely()  # first: looking for garbage among imports takes half a second

import dagster as dg

from contextcliff_dagster.defs.alerts import failed_runs_sensor
from contextcliff_dagster.defs.automation import lost_runs_sensor
from contextcliff_dagster.defs.campaign_runs import report_job, report_sensor
from contextcliff_dagster.defs.database import database_asset
from contextcliff_dagster.defs.executors.gpu import chosen_executor
from contextcliff_dagster.defs.home import warn_without_home
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.studies import (
    StudyParts,
    broken_study_asset,
    is_used_example,
    study_parts,
)
from contextcliff_dagster.defs.ui.results import with_token_ranges
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import BrokenStudy, Study, read_studies
from contextcliff_dagster.studies.files import is_retired


@dg.definitions
def defs() -> dg.Definitions:
    """Return the Definitions object of the code location.

    A study that cannot be loaded becomes an asset that fails with the reason; the others still
    load. Shipped examples that nobody has used are left out (`is_used_example`).
    """
    store = Store.default()
    studies, broken = read_studies(lambda name: is_used_example(name, store))
    warn_without_home(store)
    parts: list[StudyParts] = []
    loaded: list[Study] = []
    for study in studies.values():
        if is_retired(store, study.name):
            continue
        try:
            part = study_parts(study)
            parts.append(part._replace(assets=with_token_ranges(part.assets, study, store)))
            loaded.append(study)
        except Exception as error:  # a schedule that Dagster refuses, a prompt file that is gone
            broken.append(BrokenStudy(study.name, study.folder, f"Study {study.name!r}: {error}"))
    reports = [report_job(study) for study in loaded]
    return dg.Definitions(
        assets=[
            *(asset for part in parts for asset in part.assets),
            *(broken_study_asset(study, number) for number, study in enumerate(broken)),
            database_asset(loaded),
        ],
        jobs=[*(job for part in parts for job in part.jobs), *reports],
        schedules=[schedule for part in parts for schedule in part.schedules],
        sensors=[
            *(sensor for part in parts for sensor in part.sensors),
            failed_runs_sensor(loaded),
            lost_runs_sensor(loaded),
            *([report_sensor(loaded, reports)] if reports else ()),
        ],
        resources=default_resources(),
        executor=chosen_executor(),
    )
