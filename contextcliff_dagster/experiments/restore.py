"""Restoring a study's answers and documents from the store's tables or an archive."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contextcliff_dagster.archive.container import damaged
from contextcliff_dagster.archive.results import KeptList
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import is_own, lost_keys, planned_calls
from contextcliff_dagster.experiments.common.preparation import as_drawn
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import asked_experiments, guests, partitioned
from contextcliff_dagster.inference.ledger.campaigns import (
    ensure_campaign,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.ledger.schema import COLUMNS, from_row
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.requests.call_plan import ORIGIN, Outcome
from contextcliff_dagster.inference.spending import Spend
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study


def kept_lists(study: Study, store: Store) -> dict[str, KeptList]:
    """Return the documents of ``study`` that an archive must hold, by experiment.

    Raises:
        StoreError: the documents cannot be read.
    """
    lists = {
        experiment.name: experiment.documents.archived(study, store)
        for experiment in asked_experiments(study)
        if experiment.documents is not None
    }
    return {name: kept for name, kept in lists.items() if kept is not None}


def restore(
    study: Study, store: Store, lists: Mapping[str, KeptList], file: Path
) -> Callable[[], None]:
    """Check the documents of the archive ``file``; return a function that stores them.

    Raises:
        StoreError: the documents do not belong to ``study``, or the store has others.
    """
    asked = {e.name: e.documents for e in asked_experiments(study) if e.documents}
    if strange := sorted(lists.keys() - asked.keys()):
        raise damaged(file, f"it has documents of {strange[0][:80]!r}, not in its study")
    writers = [asked[name].restore(study, store, stored, file) for name, stored in lists.items()]

    def write() -> None:
        for writer in writers:
            writer()

    return write


Rows = list[dict[str, Any]]
Place = tuple[str, str, str]
"""Campaign, model, identity."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Counts of restored answers. ``not_restored``: answers to another sample or prompt;
    ``unidentified``: models whose next run must record the serving identity again."""

    study: str
    campaigns: tuple[str, ...]
    answers: int
    usd: float
    not_restored: int
    unidentified: tuple[str, ...]


def restore_study(study: Study, store: Store, ledger: Ledger) -> Restored:
    """Restore answers of ``study`` to the ledger that exist only in its predictions.

    Answers from an archive, and all answers of a store that another ledger measured, are restored
    as imported: no measurement counts them as its own.

    Sample, questions and recipe are the study's: an answer is restored if its call key and prompt
    hash match. Reasoning texts and requests without an answer are in no table and stay lost. Makes
    no calls; repeating it has no effect.

    Raises:
        StudyError: the sample is gone, or the study has changed since it was drawn.
        StoreError: ledger or tables cannot be read or written.
    """
    if study.has_corpus:
        study = as_drawn(study, store)
    hosts, is_ours = partitioned(study), is_own(study.name, store, ledger)
    elsewhere = None if is_ours else f"the store {store.root}"
    lost = {
        (asked, place): rows
        for asked in [*hosts, *(guest for host in hosts for guest in guests(host))]
        for place, rows in _lost_rows(study, store, ledger, asked, own=is_ours).items()
    }
    begun: dict[str, str] = {}
    for (_, (campaign, _, _)), rows in lost.items():
        first = min(row["finished_at"] for row in rows)
        begun[campaign] = min(begun.get(campaign, first), first)
    for campaign, moment in begun.items():
        # Dated back, so that the newest campaign continues.
        ensure_campaign(ledger, study.name, campaign, begun_at=moment)
    answers, usd, rest, unidentified = 0, 0.0, 0, set()
    for (experiment, place), rows in lost.items():
        campaign, model, _ = place
        run = StudyRun(study, store, ledger, campaign)
        if not _identify(run, place):
            unidentified.add(model)
        stored = _restore(run, experiment, place, rows, elsewhere)
        answers += len(stored)
        usd += sum(stored)
        rest += len(rows) - len(stored)
    return Restored(study.name, tuple(sorted(begun)), answers, usd, rest, tuple(unidentified))


def _lost_rows(
    study: Study, store: Store, ledger: Ledger, experiment: Experiment, *, own: bool
) -> Mapping[Place, Rows]:
    folder = store.study_dir(study.name) / experiment.predictions.name
    places: defaultdict[Place, Rows] = defaultdict(list)
    for path in sorted(folder.glob("campaign=*/model=*/bin=*/*.parquet")):
        if lost := lost_keys(ledger, study.name, [path], own=own):
            for row in read_table(path, experiment.predictions).to_pylist():
                if row["call_key"] in lost:
                    moment = row["finished_at"].isoformat(timespec="microseconds")
                    place = (row["campaign"], row["model"], row["identity_hash"])
                    places[place].append({**row, "finished_at": moment})
    return places


def _identify(run: StudyRun, place: Place) -> bool:
    """Record the serving identity from the profile; return False if it is missing or differs."""
    campaign, model, identity_hash = place
    study = run.study.name
    if recorded := recorded_identity(run.ledger, study, campaign, model):
        return recorded.hash == identity_hash
    with suppress(OSError, ValueError, TypeError, KeyError):
        file = run.store.profile_dir(study, campaign, model) / "cliffs.json"
        identity = Identity(json.loads(file.read_bytes())["provenance"]["identity"])
        if identity.hash == identity_hash:
            record_identity(run.ledger, study, campaign, model, identity)
            return True
    return False


def _restore(
    run: StudyRun, experiment: Experiment, place: Place, rows: Rows, elsewhere: str | None
) -> list[float]:
    """Restore rows and return the charges of their answers; ``elsewhere``: their origin."""
    campaign, model, identity_hash = place
    lost = {row["call_key"]: from_row([row.get(name) for name in COLUMNS]) for row in rows}

    def outcomes(keys: Iterable[str]) -> dict[str, Outcome]:
        wanted = list(keys)
        known = run.ledger.outcomes(wanted, run.study.name)
        return known | {key: lost[key] for key in wanted if key in lost}

    calls = {
        call.call_key: call for call in planned_calls(run, experiment, identity_hash, outcomes)
    }
    scope = Scope(run.study.name, campaign, model, identity_hash)
    noted: list[tuple[float, Future[bool]]] = []
    for row in rows:
        call, outcome = calls.get(row["call_key"]), lost[row["call_key"]]
        if call is None or (prompt := call.prompt()).hash != row["prompt_hash"]:
            continue
        usd = outcome.cost_usd or 0.0
        if not 0 <= usd < math.inf:
            outcome, usd = replace(outcome, cost_usd=None), 0.0
        tokens = (outcome.prompt_tokens or 0) + (outcome.completion_tokens or 0)
        charge = Spend(usd, max(tokens, 0), 1 if outcome.attempts else 0)
        extra = dict(outcome.extra or {})
        origin = str(extra.pop(ORIGIN)) if ORIGIN in extra else elsewhere
        outcome = replace(outcome, extra=extra or None)
        noted.append((usd, run.ledger.restore(call, prompt, scope, outcome, charge, origin)))
    return [usd for usd, future in noted if future.result()]
