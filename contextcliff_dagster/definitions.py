"""The code location: every study's assets and jobs, what they are handed, and who runs them.

Written out rather than collected by ``load_from_defs_folder``, which wraps the sentence about a
misspelt study file into a tree of modules.
"""

import dagster as dg

from contextcliff_dagster.defs.database import database_asset
from contextcliff_dagster.defs.executors.choice import chosen_executor
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.schedules import study_schedules
from contextcliff_dagster.defs.sensors import study_sensors
from contextcliff_dagster.defs.sentinel import sentinel_job, sentinel_schedules
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.studies import load_studies


@dg.definitions
def defs() -> dg.Definitions:
    """One Definitions object, read when the code location loads."""
    studies = list(load_studies().values())
    jobs = {study.name: study_jobs(study) for study in studies}
    sentinels = {study.name: sentinel_job(study) for study in studies}
    return dg.Definitions(
        assets=[
            *(asset for study in studies for asset in study_assets(study)),
            database_asset(studies),
        ],
        jobs=[*(job for of_study in jobs.values() for job in of_study), *sentinels.values()],
        schedules=[
            schedule
            for study in studies
            for schedule in (
                *study_schedules(study, jobs[study.name]),
                *sentinel_schedules(study, sentinels[study.name]),
            )
        ],
        sensors=[
            sensor for study in studies for sensor in study_sensors(study, jobs[study.name][0])
        ],
        resources=default_resources(),
        executor=chosen_executor(),
    )
