"""From predictions to a report: scoring, profiling, writing; cheap, and made again at any time."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    PREDICTIONS,
    StoreError,
    Verdict,
    conform,
)
from contextcliff_dagster.experiments.common.lists.file_list import notes_on_files
from contextcliff_dagster.experiments.common.measurement import EVERYTHING, write_predictions
from contextcliff_dagster.experiments.common.record_tables import (
    read_records,
    record_rows,
    table_files,
)
from contextcliff_dagster.experiments.common.records import scoring_rules
from contextcliff_dagster.experiments.common.study_run import StudyRun, in_order
from contextcliff_dagster.experiments.length_profile.design_error_rates import quoted
from contextcliff_dagster.experiments.length_profile.earlier_versions import (
    replaced,
    replaced_note,
)
from contextcliff_dagster.experiments.length_profile.profile_files import (
    looks_before,
    notes_on,
    outdated,
    provenance,
    read_cliffs,
    with_prompt_overhead,
)
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.store import read_table, write_result, write_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.analysis.profile.context import ModelProfile
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.reporting.html.payload import Evidence
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.sampling.manifest import Manifest

Place = tuple[Any, ...]
_PLACE = ("bin", "example_id", "length_tokens", "recipe_hash")


def score_campaign(run: StudyRun, experiment: Experiment) -> pa.Table:
    """Score every prediction of the campaign that belongs to the sample; the records written.

    However many examples a bin the study asks for: a smaller run shrinks no results.
    Predictions of an earlier manifest or another recipe are replaced by what the ledger has for
    this one. Where that is nothing they are left out, and their records removed.

    Raises:
        StoreError: a table is damaged or cannot be written; nothing of this sample is predicted
            yet (then nothing is removed).
        StudyError: the study's scorer is unknown.
    """
    import pyarrow as pa

    from contextcliff_dagster.scoring.evaluate import score_rows

    study, store, campaign, manifest = run.study, run.store, run.campaign, run.manifest
    recipe = study.recipe()
    planned = [s for bin in study.bin_keys for s in manifest.planned(bin, EVERYTHING)]
    by_id = {sample.example.example_id: sample.example for sample in planned}
    # The length, too: another tokenizer counts the same document otherwise.
    places = {(s.bin, s.example.example_id, s.length_tokens, recipe.hash) for s in planned}
    renew_predictions(run, experiment, places)
    scored: list[pa.Table] = []
    emptied: list[Path] = []
    for path in table_files(store, PREDICTIONS, study.name, campaign):
        rows = [row for row in read_table(path, PREDICTIONS).to_pylist() if _place(row) in places]
        target = _sibling(path, EVAL_RECORDS.name)
        # Outputs were pruned: an empty answer is an empty text, never none.
        if any(row["raw_output"] is None and row["no_answer"] is None for row in rows):
            # Judged while they were there; judged now, an answer would pass for none.
            judged = read_table(target, EVAL_RECORDS).to_pylist() if target.exists() else []
            if rows := [row for row in judged if _place(row) in places]:
                scored.append(conform(rows, EVAL_RECORDS))
            continue
        if not rows:
            emptied.append(target)
            continue
        records = score_rows(rows, by_id, manifest.document_text, scoring_rules(study, recipe))
        write_table(target, records, EVAL_RECORDS)
        scored.append(conform(records, EVAL_RECORDS))
    if not scored:
        raise StoreError(
            f"Study {study.name!r} has no predictions in campaign {campaign} yet"
            f"{' for its current sample and request' if emptied else ''}; "
            f"run `contextcliff profile {study.name}`."
        )
    # Only what has no predictions is stale: another run may be scoring its own bins meanwhile.
    for records_file in table_files(store, EVAL_RECORDS, study.name, campaign):
        if records_file in emptied or not _sibling(records_file, PREDICTIONS.name).exists():
            records_file.unlink(missing_ok=True)
    return pa.concat_tables(scored)


def renew_predictions(run: StudyRun, experiment: Experiment, places: Collection[Place]) -> None:
    """Write again, without a call, what was predicted or profiled for another sample or request.

    Of models that are not of the run, too: the ledger may have more or other answers of theirs to
    this sample. ``places``: those of the current one.
    """
    changed = set(outdated(run).values())
    measured: set[str] = set()
    for path in table_files(run.store, PREDICTIONS, run.study.name, run.campaign):
        columns = read_table(path, PREDICTIONS).select(["model", *_PLACE])
        for row in columns.to_pylist():
            measured.add(row["model"])
            if _place(row) not in places:
                changed.add(row["model"])
    for model in changed & measured:
        for bin in run.study.bin_keys:
            write_predictions(run, experiment, model, bin)


def profile_campaign(
    run: StudyRun, records: pd.DataFrame, guests: Mapping[str, Experiment]
) -> list[ModelProfile]:
    """Analyse each model's records and write its ``metrics.json`` and ``cliffs.json``.

    Models in the study's order, then others measured in the same campaign. What was profiled of
    another sample or request is removed.

    Raises:
        StoreError: there are no records.
    """
    from contextcliff_dagster.analysis.profile.context import ProfileContext
    from contextcliff_dagster.analysis.profile.model_profile import profile_model
    from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
    from contextcliff_dagster.inference.models.models_file import load_models
    from contextcliff_dagster.scoring.truncation import truncations, unchecked

    study, store, campaign, manifest = run.study, run.store, run.campaign, run.manifest
    entries, copied = load_models(), _copied(manifest)
    manifest.forget_documents()  # a vocabulary takes its own room, and so does the analysis
    records = with_prompt_overhead(study, manifest, records)
    account = manifest.header["corpus"].get("account", {})
    profiles = []
    for model in in_order(study, records["model"].unique()):
        own = records[records["model"] == model]
        identity = recorded_identity(run.ledger, study.name, campaign, model)
        fields: Mapping[str, Any] = identity.fields if identity else {}
        window = identity.window_tokens if identity else None
        if window is None and model in entries:
            window = entries[model].window_tokens
        made = provenance(study, manifest, own, fields)
        folder = store.profile_dir(study.name, campaign, model)
        added = {name: guest.contribution(run, model) for name, guest in guests.items()}
        context = ProfileContext(
            model=model,
            study=study.name,
            campaign=campaign,
            task=study.task or _only(own["task"]),
            tokenizer=study.tokenizer,
            identity=identity.hash if identity else _only(own["identity_hash"]),
            window_tokens=window,
            score_name=study.scoring.primary,
            primary=study.scoring.primary,
            scorer_version=SCORER_VERSION,
            provenance=made | replaced(folder, made["hashes"]),
            warnings=[
                *(f"{clause[:1].upper()}{clause[1:]}." for clause in account.get("cautions", ())),
                *(line for cut in truncations(record_rows(own)) for line in unchecked(cut)),
            ],
            per_bin=int(own.groupby("bin")["example_id"].nunique().max()),
            looks=looks_before(run, model, own.loc[own["score"].notna(), "example_id"].nunique()),
            copied_share=copied,
            controls=added.get("controls", ()),
            attention=added.get("attention_entropy"),
        )
        profile = profile_model(own, manifest.bins, study.analysis_settings(), context)
        if profile.cliffs.verdict is Verdict.INSUFFICIENT_DATA and _runs(run, context.identity):
            reason = f"{profile.cliffs.safe_cap_reason} Measuring still runs."
            profile = replace(profile, cliffs=replace(profile.cliffs, safe_cap_reason=reason))
        write_result(folder / "metrics.json", profile.metrics)
        write_result(folder / "cliffs.json", profile.cliffs)
        profiles.append(profile)
    for folder in outdated(run):
        shutil.rmtree(folder, ignore_errors=True)  # `read_cliffs` leaves out what remains
    return profiles


def report_campaign(run: StudyRun, sections: Sequence[Section] = ()) -> ReportFiles:
    """Write the campaign's report over all its models.

    ``sections``: those of other experiments of the study, shown after its own. Notes give the
    design's error rates where they were simulated (`contextcliff calibrate`), and name earlier caps
    by another method or other scorers, and the models left out because they were measured with
    another sample or request.

    Raises:
        StoreError: nothing is profiled yet, or the report cannot be written.
    """
    from contextcliff_dagster.experiments.length_profile.kv_policies import kv_families
    from contextcliff_dagster.reporting.kv.policies import policy_sections
    from contextcliff_dagster.reporting.report_files import write_report

    study, store, campaign, manifest = run.study, run.store, run.campaign, run.manifest
    folder = store.report_dir(study.name, campaign)
    cliffs = read_cliffs(study, store, campaign)
    profiled = [result.model for result in cliffs]
    records = read_records(study, store, campaign)
    return write_report(
        cliffs,
        records,
        folder,
        title=study.description or study.name,
        notes=[
            *filter(None, map(replaced_note, cliffs)),
            *quoted(study, store, manifest, cliffs),
            *notes_on(run, profiled),
            *notes_on_files(study, store, manifest.header["corpus"].get("account", {})),
        ],
        sections=[*policy_sections(kv_families(run, cliffs, records)), *sections],
        evidence=_evidence(run, cliffs, records),
    )


def _evidence(run: StudyRun, cliffs: Sequence[Cliffs], records: pd.DataFrame) -> Evidence:
    """Other scores of each bin, and the answers where the run shows them."""
    from contextcliff_dagster.analysis.profile.other_scores import other_scores
    from contextcliff_dagster.experiments.common.answers import read_answers
    from contextcliff_dagster.reporting.html.payload import Evidence

    settings, models = run.study.analysis_settings(), [result.model for result in cliffs]
    rows = dict(iter(records.groupby("model", sort=False)))
    scores = {
        result.model: other_scores(
            rows[result.model], result.bins, settings, run.study.scoring.primary
        )
        for result in cliffs
        if result.model in rows
    }
    answers = read_answers(run, models) if run.with_answers else None
    how = f"contextcliff report {run.study.name} --campaign {run.campaign} --with-answers"
    return Evidence(scores=scores, answers=answers, how=how)


def _runs(run: StudyRun, identity: str | None) -> bool:
    """Whether a living process has claimed calls of the model with this serving identity."""
    from contextcliff_dagster.inference.requests.call_plan import plan_calls

    asked = run.study.recipe(), run.campaign, run.study.bin_keys, EVERYTHING
    planned = plan_calls(run.manifest, identity or "", *asked)
    owners = run.ledger.claimed(call.call_key for call in planned).values()
    return not all(map(run.ledger.release_dead, set(owners)))


def _copied(manifest: Manifest) -> float | None:
    """Share of the sample's questions whose answer is to be copied; see `copied_share`.

    What takes two places of the document to answer is not copied.
    """
    from contextcliff_dagster.scoring.containment import (
        MOST_CHARACTERS,
        MOST_QUESTIONS,
        Haystack,
        copied_share,
    )

    planned = [s.example for b in manifest.bins for s in manifest.planned(b.bin, EVERYTHING)]
    questions = []
    for example in planned[:: 1 + len(planned) // MOST_QUESTIONS]:
        text, known = manifest.document_text(example.document_id), example.metadata
        if example.answers and len(text) <= MOST_CHARACTERS:
            one_place = (known.get("level") or 1) == 1 and not known.get("inter_evidence_tokens")
            held = one_place and any(map(Haystack(text).holds, example.answers))
            questions.append((example.answers[0], held))
    return copied_share(questions)


def _place(row: Mapping[str, Any]) -> Place:
    return tuple(row[name] for name in _PLACE)


def _sibling(file: Path, table: str) -> Path:
    """The same partition's file of another table (layout: ``Store``)."""
    *_, campaign, model, bin, _ = file.parts
    return file.parents[4] / table / campaign / model / bin / f"{table}.parquet"


def _only(column: pd.Series) -> str | None:
    values = column.dropna().unique()
    return str(values[0]) if len(values) == 1 else None
