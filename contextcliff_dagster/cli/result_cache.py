"""Cache of finished studies: unchanged results are printed without Dagster, in 1 s instead of 8.

The note that a finished run leaves next to its report lists all inputs of the run. If anything
differs (the study, a model's weights or entry, our own code, a missing or touched file), the
command runs in full.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.store import PACKAGE, Store, slug, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.telemetry import RunSummary
    from contextcliff_dagster.run.study import Profiled
    from contextcliff_dagster.studies import Study

_NOTE = ".made_from.json"


def find_finished(
    store: Store, study: Study, campaign: str | None, with_answers: bool = False
) -> Profiled | None:
    """Return the study's results if they are complete and their sources are unchanged.

    Args:
        study: the study with the requested seed, sample size and models.
        campaign: the campaign's name; None for the newest.
        with_answers: whether the report must include questions and answers.
    """
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.telemetry import RunSummary
    from contextcliff_dagster.run.study import read_profiled

    if not store.has_ledger:
        return None
    with Ledger.open(store.ledger) as ledger:
        name = campaign
        if name is None:
            if not list_campaigns(ledger, study.name):
                return None
            name = current_campaign(ledger, study.name)
        try:
            note = json.loads((store.report_dir(study.name, name) / _NOTE).read_bytes())
            made_from, planned = note["made_from"], note["planned"]
            if note["results"] > _results(ledger):
                return None
        except (OSError, ValueError, TypeError, KeyError):
            return None
    now = _made_from(store, study, name, with_answers)
    if now is None or now != made_from:
        return None
    calls = {m: RunSummary(planned=n, cached=n) for m, n in planned.items()}
    return read_profiled(study, store, name, calls)


def note_finished(
    store: Store,
    study: Study,
    campaign: str,
    calls: Mapping[str, RunSummary],
    with_answers: bool = False,
) -> None:
    """Write a note if a run left no call open; ignore errors, because the note is only a cache."""
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    left_open = any(summary.transport_errors or summary.stopped for summary in calls.values())
    if left_open or set(calls) != set(study.models):
        return
    with suppress(ContextCliffError):
        with Ledger.open(store.ledger) as ledger:
            results = _results(ledger)
        note = {
            "made_from": _made_from(store, study, campaign, with_answers),
            "planned": {model: summary.planned for model, summary in calls.items()},
            "results": results,
        }
        write_atomic(store.report_dir(study.name, campaign) / _NOTE, json.dumps(note).encode())


def _made_from(
    store: Store, study: Study, campaign: str, with_answers: bool
) -> dict[str, Any] | None:
    """Return all inputs of the results as JSON values; None if a model's identity is unknown."""
    from contextcliff_dagster.inference.engines.base import declared_identity
    from contextcliff_dagster.inference.models.models_file import get_model
    from contextcliff_dagster.inference.requests.recipe import stable_hash

    try:
        entries = {name: get_model(name) for name in study.models}
        models = {
            # A hash, because an address may contain its password.
            name: [stable_hash(entry.model_dump(mode="json")), declared_identity(entry)]
            for name, entry in entries.items()
        }
        recipe = study.recipe().hash
    except ContextCliffError:
        return None
    facts = {
        "study": study.model_dump(mode="json"),
        "recipe": recipe,
        "with_answers": with_answers,
        "models": models,
        # A package installed since may be one that an experiment did without.
        "packages": Path(sysconfig.get_path("purelib")).stat().st_mtime_ns,
        "code": max(path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py")),
        "files": _files(store, study.name, campaign),
    }
    return dict(json.loads(json.dumps(facts, default=str)))


def _files(store: Store, study: str, campaign: str) -> dict[str, list[int]]:
    """Return path -> [size, mtime] for all files that a finished campaign wrote or quotes."""
    root = store.study_dir(study)
    folders = (
        store.manifest_dir(study),
        *root.glob(f"*/campaign={slug(campaign)}"),
        store.profiles_dir(study, campaign),
        store.results_file(study, campaign, "any").parent,
        store.report_dir(study, campaign),
    )
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    stats = {
        path: path.stat()
        for path in (store.calibration_file(study), *paths)
        if path.is_file() and path.name != _NOTE
    }
    return {
        str(path.relative_to(root)): [stat.st_size, stat.st_mtime_ns]
        for path, stat in stats.items()
    }


def _results(ledger: Ledger) -> int:
    return int(ledger.read("SELECT count(*) FROM results")[0][0])
