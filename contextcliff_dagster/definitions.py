"""The code location: the assets and jobs of every study, their resources and the executor.

Study files are listed explicitly rather than collected by ``load_from_defs_folder``, which would
bury the error message about a misspelt one in a module traceback.
"""

from contextcliff_dagster.freed_memory import collect_garbage_rarely

collect_garbage_rarely()  # first: looking for garbage among imports takes half a second

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.definitions import LazyDefinitions

from contextcliff_dagster.components import SCAFFOLDED, StudyComponent
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.home import warn_without_home
from contextcliff_dagster.defs.resources import default_resources
from contextcliff_dagster.defs.studies import (
    broken_study_asset,
    is_used_example,
    shared_definitions,
    study_parts,
)
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import BrokenStudy, Study, read_studies


def code_location(resources: Mapping[str, object] | None = None, **shared: bool) -> dg.Definitions:
    """Return the Definitions object of the code location.

    A study that cannot be loaded becomes an asset that fails with the reason; the others still
    load. Shipped examples that nobody has used are left out (`is_used_example`).

    ``resources`` replaces some of `default_resources`, by key. ``shared``: ``executor``,
    ``database`` and ``alerts`` of `shared_definitions`.
    """
    store = Store.default()
    studies, broken = read_studies(lambda name: is_used_example(name, store))
    warn_without_home(store)
    parts: list[dg.Definitions] = []
    loaded: list[Study] = []
    for study in studies.values():
        try:
            parts.append(study_parts(study))
            loaded.append(study)
        except Exception as error:  # a schedule that Dagster refuses, a prompt file that is gone
            broken.append(BrokenStudy(study.name, study.folder, f"Study {study.name!r}: {error}"))
    folder = Path(__file__).with_name(SCAFFOLDED)
    try:
        scaffolded, more = _load_scaffolded(folder, studies)
        parts.append(scaffolded)
        loaded += more
    except Exception as error:
        cause = " ".join(str(error.__cause__ or error).split())
        broken.append(BrokenStudy(SCAFFOLDED, folder, f"{folder}: {cause}"))
    failing = [broken_study_asset(study, number) for number, study in enumerate(broken)]
    own = dg.Definitions(failing, resources={**default_resources(), **(resources or {})})
    return dg.Definitions.merge(*parts, own, shared_definitions(loaded, **shared))


class _Callable(LazyDefinitions[dg.Definitions]):
    """Definitions that Dagster finds and calls, and that take arguments from other callers."""

    def __call__(self, context: object = None, **asked: Any) -> dg.Definitions:
        return self.load_fn(**asked)


defs = _Callable(load_fn=code_location, has_context_arg=False)


def _load_scaffolded(folder: Path, taken: Collection[str]) -> tuple[dg.Definitions, list[Study]]:
    """Return the definitions that `dg scaffold defs` wrote into ``folder``, and their studies.

    Raises:
        Exception: a component cannot be loaded, or a study's name is among ``taken``.
    """
    if not any(path.name[0] not in "._" for path in folder.iterdir()):
        return dg.Definitions(), []  # reading the components of all packages takes a second
    tree = dg.ComponentTree.for_project(folder)
    studies = [component.study for component in tree.get_all_components(StudyComponent)]
    if twice := {study.name for study in studies}.intersection(taken):
        raise StudyError(f"A study file has the name {min(twice)!r}, too; change one of the two.")
    return tree.build_defs(folder), studies
