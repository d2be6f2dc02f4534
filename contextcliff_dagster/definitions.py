"""The code location: every study's assets and jobs, what they are handed, and who runs them.

Written out rather than collected by ``load_from_defs_folder``, which wraps the sentence about a
misspelt study file into a tree of modules.
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
    """One Definitions object, read when the code location loads.

    A study that cannot be loaded is an asset that fails with the reason; the others go on. Shipped
    examples that nobody has used are left out (`is_used_example`).
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
            made = study_parts(study)
            parts.append(made._replace(assets=with_token_ranges(made.assets, study, store)))
            loaded.append(study)
        except Exception as error:  # a schedule that Dagster refuses, a prompt file that is gone
            broken.append(BrokenStudy(study.name, study.folder, f"Study {study.name!r}: {error}"))
    reports = [report_job(study) for study in loaded]
    return dg.Definitions(
        assets=[
            *(asset for part in parts for asset in part.assets),
            *(broken_study_asset(one, number) for number, one in enumerate(broken)),
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
