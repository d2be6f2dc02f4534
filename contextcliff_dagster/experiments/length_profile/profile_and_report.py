"""From records to a report: profiling and writing; cheap, and made again at any time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.experiments.common.lists.file_list import notes_on_files
from contextcliff_dagster.experiments.common.measurement import EVERYTHING
from contextcliff_dagster.experiments.common.record_tables import read_records, record_rows
from contextcliff_dagster.experiments.common.study_run import (
    StudyRun,
    guest_origins,
    in_order,
    origin_lines,
    origins_of,
)
from contextcliff_dagster.experiments.length_profile.earlier_versions import replaced, replaced_note
from contextcliff_dagster.experiments.length_profile.floor_answers import floor_sections
from contextcliff_dagster.experiments.length_profile.profile_files import (
    looks_before,
    notes_on,
    outdated,
    provenance,
    read_cliffs,
    with_prompt_overhead,
)
from contextcliff_dagster.experiments.length_profile.simulated_design import quoted
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.store import write_result

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.bin_statistics import ModelProfile
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.reporting.html.payload import Evidence
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.sampling.manifest import Manifest


_UNVERIFIED = (
    "The server's certificate is not checked (`verify: false` in models.yaml): another server may "
    "have answered in its place."
)


def profile_campaign(
    run: StudyRun, records: pd.DataFrame, guests: Mapping[str, Experiment]
) -> list[ModelProfile]:
    """Analyse each model's records and write its ``metrics.json`` and ``cliffs.json``.

    Models in the study's order, then others measured in the same campaign. What was profiled of
    another sample or request is removed.

    Raises:
        StoreError: there are no records.
    """
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model
    from contextcliff_dagster.experiments.length_profile.serving_notes import (
        mixtures,
        serving_notes,
    )
    from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
    from contextcliff_dagster.inference.models.models_file import load_models
    from contextcliff_dagster.scoring.truncation import COLUMNS, truncations, unchecked

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
        mixed = mixtures(own, manifest.bins)
        fingerprints = [note] if (note := mixed.pop("system_fingerprint", None)) else []
        cut = truncations(record_rows(own[list(COLUMNS)]))
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
            provenance=made
            | replaced(folder, made["hashes"])
            | ({"origins": origins} if (origins := origins_of(run, own)) else {}),
            warnings=[
                *(f"{clause[:1].upper()}{clause[1:]}." for clause in account.get("cautions", ())),
                *(line for one in cut for line in unchecked(one)),
                *([_UNVERIFIED] if model in entries and not entries[model].verify else []),
                *fingerprints,
                *serving_notes(own),
                *(line for guest in guests.values() for line in guest_origins(run, guest, model)),
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
        if doubts := [*mixed.values(), *filter(None, [profile.cliffs.score_doubt])]:
            profile = replace(profile, cliffs=replace(profile.cliffs, score_doubt=" ".join(doubts)))
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
    at_floor = floor_sections(run, cliffs, with_answers=run.with_answers)
    return write_report(
        cliffs,
        records,
        folder,
        title=study.description or study.name,
        notes=[
            *filter(None, map(replaced_note, cliffs)),
            *quoted(study, store, manifest, cliffs),
            *origin_lines(run, records),
            *notes_on(run, profiled),
            *notes_on_files(study, store, manifest.header["corpus"].get("account", {})),
        ],
        sections=[*at_floor, *policy_sections(kv_families(run, cliffs, records)), *sections],
        evidence=_evidence(run, cliffs, records),
    )


def _evidence(run: StudyRun, cliffs: Sequence[Cliffs], records: pd.DataFrame) -> Evidence:
    """Other scores of each bin, and the answers where the run shows them."""
    from contextcliff_dagster.experiments.common.answers import read_answers
    from contextcliff_dagster.experiments.length_profile.other_scores import other_scores
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


def _only(column: pd.Series) -> str | None:
    values = column.dropna().unique()
    return str(values[0]) if len(values) == 1 else None
