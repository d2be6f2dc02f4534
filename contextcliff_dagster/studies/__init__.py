"""Studies: one YAML file says what is measured, with which models, and how it is judged.

Belongs here: the schema of a study file, its defaults and cross-checks, and where study files are
looked for. Does not belong here: running a study; a study's methods only hand each package the part
that it asks for.
"""

# mypy: implicit-reexport
# ruff: noqa: F401 - what is imported here is what this package offers

from contextcliff_dagster.studies.files import (
    BrokenStudy,
    find_study,
    hidden_study,
    kept_in,
    known_study,
    load_studies,
    load_study,
    measures,
    own_study,
    read_studies,
    self_contained,
    study_folders,
)
from contextcliff_dagster.studies.sections import study_name
from contextcliff_dagster.studies.study import Study
