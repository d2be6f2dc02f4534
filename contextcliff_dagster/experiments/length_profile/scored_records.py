"""Scoring of predictions: each partition is scored again if its inputs have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Example, StoreError, conform
from contextcliff_dagster.experiments.common.code_version import experiment_version
from contextcliff_dagster.experiments.common.measurement import EVERYTHING, write_predictions
from contextcliff_dagster.experiments.common.records import RecordsAtOnce, scoring_rules
from contextcliff_dagster.experiments.common.study_run import StudyRun, table_files
from contextcliff_dagster.experiments.length_profile.profile_files import models_outdated
from contextcliff_dagster.inference.execution.prediction_rows import limits_of
from contextcliff_dagster.inference.ledger.batches import batches_of
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.scoring.evaluate import score_rows
from contextcliff_dagster.scoring.scorers import AUTO, BUILT_IN
from contextcliff_dagster.store import read_table, write_table

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.experiments.common.experiment import Experiment

Place = tuple[Any, ...]
_PLACE = ("bin", "example_id", "length_tokens", "recipe_hash")


def score_campaign(run: StudyRun, experiment: Experiment) -> pa.Table:
    """Score the campaign's predictions on the current sample; return the records.

    Scores all predictions, even if the study asks for fewer examples per bin. Predictions of an
    earlier manifest or another recipe are replaced by the ledger's answers for the current one; if
    there are none, they are left out and their records removed. Records whose predictions, sample,
    request and rules are unchanged are kept.

    Raises:
        StoreError: a table is damaged or cannot be written, or this sample has no predictions yet
            (then nothing is removed).
        StudyError: the study's scorer is unknown.
    """
    import pyarrow as pa

    study, store, campaign = run.study, run.store, run.campaign
    at_once = RecordsAtOnce(store, EVAL_RECORDS, study.name, campaign)
    scoring = _Scoring(run, experiment, at_once)
    kept_records = {
        path: records
        for path in _predictions_of(run)
        if (records := scoring.kept(path)) is not None
    }
    if _renew_predictions(run, experiment, scoring, kept_records):
        kept_records = {}
    scored: list[pa.Table] = []
    emptied: list[Path] = []
    for path in _predictions_of(run):
        records = kept_records[path] if path in kept_records else scoring.scored(path)
        if records is None:
            emptied.append(_records_of(path))
        elif records.num_rows:
            scored.append(records)
    if not scored:
        waits = batches_of(run.ledger, is_open=True, study=study.name, campaign=campaign)
        raise StoreError(
            f"Study {study.name!r} has no predictions in campaign {campaign} yet"
            f"{' for its current sample and request' if emptied else ''}; "
            f"{'its calls wait in batches, so later ' if waits else ''}run `contextcliff "
            f"{'batches resume' if waits else 'profile'} {study.name}`."
        )
    # Only records without predictions are stale: another run may be scoring other bins.
    for records_file in table_files(store, EVAL_RECORDS, study.name, campaign):
        if records_file in emptied or not _sibling(records_file, PREDICTIONS.name).exists():
            records_file.unlink(missing_ok=True)
    at_once.keep(table_files(store, EVAL_RECORDS, study.name, campaign))
    return pa.concat_tables(scored)


class _Scoring:
    """The scoring of one campaign's predictions."""

    def __init__(self, run: StudyRun, experiment: Experiment, at_once: RecordsAtOnce) -> None:
        self._at_once = at_once
        manifest, recipe = run.manifest, run.study.recipe()
        planned = [s for bin in run.study.bin_keys for s in manifest.planned(bin, EVERYTHING)]
        self._examples: Mapping[str, Example] = {s.example.example_id: s.example for s in planned}
        self._documents = manifest.document_text
        self._rules = scoring_rules(run.study, recipe)
        # Includes the length, because another tokenizer counts the same document differently.
        self._places = {
            (s.bin, s.example.example_id, s.length_tokens, recipe.hash) for s in planned
        }
        version = experiment_version(run.study, experiment, "records")
        self._made_by = [manifest.sha256, recipe.hash, SCORER_VERSION, version]
        # The code of custom scorers may change without a version.
        self._may_keep = self._rules.scorer in (AUTO, *BUILT_IN)

    def belongs(self, row: Mapping[str, Any]) -> bool:
        """Return whether a prediction belongs to the sample and the study's request."""
        return tuple(row[name] for name in _PLACE) in self._places

    def kept(self, path: Path) -> pa.Table | None:
        """Return the records of the predictions in ``path`` if they are up to date."""
        target = _records_of(path)
        if not self._may_keep or self._at_once.made_from(target) != self._source(path):
            return None
        return self._at_once.read(target)

    def scored(self, path: Path) -> pa.Table | None:
        """Write and return the records of predictions in ``path``; None if none belongs.

        Predictions with pruned outputs keep their earlier records, and nothing is written.
        """
        source, target = self._source(path), _records_of(path)
        predicted = read_table(path, PREDICTIONS).to_pylist()
        rows = [row for row in predicted if self.belongs(row)]
        # A pruned answer must not be scored as missing: an empty answer is an empty text.
        if any(row["raw_output"] is None and row["no_answer"] is None for row in rows):
            judged = read_table(target, EVAL_RECORDS).to_pylist() if target.exists() else []
            return conform([row for row in judged if self.belongs(row)], EVAL_RECORDS)
        if not rows:
            return None
        records = conform(
            score_rows(rows, self._examples, self._documents, self._rules), EVAL_RECORDS
        )
        # Other rows in the file are replaced once the ledger has more, so check it again.
        whole = len(rows) == len(predicted)
        write_table(target, records, EVAL_RECORDS, made_from=source if whole else None)
        return records

    def _source(self, path: Path) -> str:
        digest = hashlib.blake2b(path.read_bytes(), digest_size=16)
        digest.update("\0".join(self._made_by).encode())
        return digest.hexdigest()


def _renew_predictions(
    run: StudyRun, experiment: Experiment, scoring: _Scoring, kept: Mapping[Path, pa.Table]
) -> bool:
    """Rewrite, without calls, predictions and profiles of another sample or request.

    Includes models outside the run, because the ledger may have other answers of theirs to this
    sample. ``kept``: records whose predictions all belong. Return whether anything was written.
    """
    changed, fresh, unsettled = models_outdated(run), set[str](), set[str]()
    measured = {
        model for records in kept.values() for model in records["model"].unique().to_pylist()
    }
    for path in _predictions_of(run):
        if path in kept:
            continue
        columns = ["model", "no_answer", "raw_output", *_PLACE]
        for row in read_table(path, PREDICTIONS, columns).to_pylist():
            fresh.add(row["model"])
            if row["no_answer"] == "transport_error" or not (row["raw_output"] or "").strip():
                unsettled.add(row["model"])
            if not scoring.belongs(row):
                changed.add(row["model"])
    measured |= fresh
    # A limit may show only in the calls of several bins, the first of them written earlier.
    for records in kept.values():
        if not {"empty", "transport_error"}.isdisjoint(records["failure"].unique().to_pylist()):
            unsettled |= fresh.intersection(records["model"].unique().to_pylist())
    for model in unsettled - changed:
        limits = limits_of(run.ledger, run.study.name, run.campaign, model)
        if limits.refused or limits.mute:
            changed.add(model)
    for model in changed & measured:
        for bin in run.study.bin_keys:
            write_predictions(run, experiment, model, bin)
    return bool(changed & measured)


def _predictions_of(run: StudyRun) -> Sequence[Path]:
    return table_files(run.store, PREDICTIONS, run.study.name, run.campaign)


def _records_of(predictions: Path) -> Path:
    return _sibling(predictions, EVAL_RECORDS.name)


def _sibling(file: Path, table: str) -> Path:
    """Return the same partition's file of another table (layout: ``Store``)."""
    *_, campaign, model, bin, _ = file.parts
    return file.parents[4] / table / campaign / model / bin / f"{table}.parquet"
