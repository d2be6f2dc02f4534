"""Cache of finished studies: unchanged results are printed without Dagster, in 1 s instead of 8.

The note that a finished run leaves next to its report lists all inputs of the run. If anything
differs (the study, a model's weights or entry, our own code, a missing or touched file), the
command runs in full.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.store import PACKAGE, Store, slug, write_atomic
from contextcliff_dagster.studies.experiment_table import EXPERIMENTS

if TYPE_CHECKING:
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.telemetry import RunSummary
    from contextcliff_dagster.run.study import Profiled
    from contextcliff_dagster.studies import Study

_NOTE = ".made_from.json"
_UNUSABLE = OSError, ValueError, TypeError, KeyError, AttributeError, ContextCliffError


def find_finished(
    store: Store,
    study: Study,
    campaign: str | None,
    with_answers: bool = False,
    *,
    complete: bool = True,
) -> Profiled | None:
    """Return the study's results if their sources are unchanged.

    Args:
        study: the study with the requested seed, sample size and models.
        campaign: the campaign's name; None for the newest.
        with_answers: whether the report must include questions and answers.
        complete: whether every call must have its answer.
    """
    from contextcliff_dagster.inference.ledger.campaigns import current_campaign, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.telemetry import RunSummary
    from contextcliff_dagster.run.study import read_profiled

    # Another report may find what an extension lacked, reach a tracker, send an alert.
    more = study.sections.keys() - EXPERIMENTS.keys() or study.track is not None
    more = more or store.baseline_file(study.name).exists()
    if not store.has_ledger or (more and not complete):
        return None
    with Ledger.open(store.ledger) as ledger:
        if campaign is None and not list_campaigns(ledger, study.name):
            return None
        name = campaign or current_campaign(ledger, study.name)
        try:
            note = json.loads((store.report_dir(study.name, name) / _NOTE).read_bytes())
            planned, results = note["planned"], note["results"] - _results(ledger)
            if results > 0 or (not planned and (complete or results)):
                return None
            now = _made_from(store, ledger, study, name, with_answers)
            if now is None or now != note["made_from"]:
                return None
            calls = {m: RunSummary(planned=int(n), cached=int(n)) for m, n in planned.items()}
            return read_profiled(study, store, name, calls if complete else {})
        except _UNUSABLE:
            return None


def note_finished(
    store: Store,
    study: Study,
    campaign: str,
    calls: Mapping[str, RunSummary],
    with_answers: bool = False,
) -> None:
    """Write a note if a run left no call open; ignore errors, because the note is only a cache.

    ``calls``: empty for a report of the answers so far, which holds until another one comes.
    """
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    left_open = any(summary.transport_errors or summary.stopped for summary in calls.values())
    if left_open or (calls and set(calls) != set(study.models)):
        return
    with suppress(*_UNUSABLE), Ledger.open(store.ledger) as ledger:
        note = {
            "made_from": _made_from(store, ledger, study, campaign, with_answers),
            "planned": {model: summary.planned for model, summary in calls.items()},
            "results": _results(ledger),
        }
        write_atomic(store.report_dir(study.name, campaign) / _NOTE, json.dumps(note).encode())


def _made_from(
    store: Store, ledger: Ledger, study: Study, campaign: str, with_answers: bool
) -> dict[str, Any] | None:
    """Return all inputs of the results as JSON values; None if one of them is unknown."""
    from contextcliff_dagster.inference.engines.base import declared_identity
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
    from contextcliff_dagster.inference.ledger.schema import joined
    from contextcliff_dagster.inference.models.models_file import get_model, load_models
    from contextcliff_dagster.inference.requests.recipe import stable_hash
    from contextcliff_dagster.scoring.scorers import AUTO, BUILT_IN

    answers = ledger.read(
        "SELECT c.call_key, r.checksum, r.owner, r.study, r.origin, i.checksum, i.origin, l.owner"
        f" FROM study_calls c{joined()} LEFT JOIN claims l ON l.call_key = c.call_key"
        " WHERE c.study = ? AND c.campaign = ? ORDER BY c.call_key",
        (study.name, campaign),
    )
    # The code of another scorer may change without a version.
    if study.scoring.scorer not in (AUTO, *BUILT_IN) or any(owner for *_, owner in answers):
        return None
    try:
        entries = load_models()
        models = {name: declared_identity(get_model(name, entries)) for name in study.models}
        recipe = study.recipe().hash
    except ContextCliffError:
        return None
    latest = store.report_dir(study.name, campaign).parent / "latest"
    facts = {
        "study": study.model_dump(mode="json"),
        "recipe": recipe,
        "with_answers": with_answers,
        "models": models,
        # A hash, because an address may contain its password.
        "entries": stable_hash({n: entry.model_dump(mode="json") for n, entry in entries.items()}),
        "answers": stable_hash(answers),
        "campaigns": [known.name for known in list_campaigns(ledger, study.name)],
        # A package installed since may be one that an experiment did without.
        "packages": Path(sysconfig.get_path("purelib")).stat().st_mtime_ns,
        "code": stable_hash(_stats(PACKAGE, PACKAGE.rglob("*.*"))),
        "latest": latest.read_text() if latest.is_file() else latest.resolve().name,
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
    paths = [path for folder in folders for path in folder.rglob("*")]
    return _stats(root, (store.calibration_file(study), *paths))


def _stats(root: Path, paths: Iterable[Path]) -> dict[str, list[int]]:
    files = (p for p in paths if p.name != _NOTE and p.suffix != ".pyc" and p.is_file())
    return {str(p.relative_to(root)): [p.stat().st_size, p.stat().st_mtime_ns] for p in files}


def _results(ledger: Ledger) -> int:
    return int(ledger.read("SELECT count(*) FROM results")[0][0])
