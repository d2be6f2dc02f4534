"""Profiles and reports from records; they can be rebuilt cheaply at any time."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.statistics.intervals import document_interval
from contextcliff_dagster.contracts import (
    ANSWER_IN,
    ASKED_BY,
    UNSCORED_TAGS,
    LengthBin,
    StudyError,
    Verdict,
)
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.comparison import UNPRESSED, KvPolicy
from contextcliff_dagster.contracts.results.json_form import BinMean, BinResult
from contextcliff_dagster.experiments.common.documents import notes_on_files
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import EVERYTHING
from contextcliff_dagster.experiments.common.records import read_records, record_rows
from contextcliff_dagster.experiments.common.study_run import (
    StudyRun,
    guest_origins,
    in_order,
    origin_lines,
    origins_of,
)
from contextcliff_dagster.experiments.length_profile.profile_files import (
    looks_before,
    notes_on,
    outdated,
    provenance,
    read_cliffs,
    replaced,
    replaced_note,
    with_prompt_overhead,
)
from contextcliff_dagster.experiments.length_profile.simulated_design import quoted
from contextcliff_dagster.inference.engines.base import UNKNOWN_FINISH, WHO_ANSWERED
from contextcliff_dagster.inference.execution.prediction_rows import same_words
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.models.kv_variants import (
    POLICIES,
    kv_baseline,
    kv_of,
    parse_kv_variant,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model, load_models
from contextcliff_dagster.inference.requests.call_plan import plan_calls
from contextcliff_dagster.redaction import redact, secrets_of
from contextcliff_dagster.reporting.html.render import visible
from contextcliff_dagster.reporting.sections import Block, Code, DataTable, Paragraph, Section
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.scoring.containment import (
    MOST_CHARACTERS,
    MOST_QUESTIONS,
    Haystack,
    copied_share,
)
from contextcliff_dagster.scoring.evaluate import COLUMNS, truncations, unchecked
from contextcliff_dagster.store import write_result

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.analysis.bin_statistics import ModelProfile
    from contextcliff_dagster.analysis.records import AnalysisSettings
    from contextcliff_dagster.reporting.html.payload import Evidence
    from contextcliff_dagster.reporting.report_files import ReportFiles


_SHOWN, _CHARACTERS = 3, 120
_HEAD = ("tokens", "question", "accepted", "what the model said")


def floor_sections(
    run: StudyRun, cliffs: Sequence[Cliffs], *, with_answers: bool = True
) -> list[Section]:
    """Return sections of wrong answers to the shortest documents, per model that gave no other.

    Without ``with_answers``, they give the command that shows the answers.
    """
    from contextcliff_dagster.experiments.common.answers import read_answers

    secrets = secrets_of(os.environ)

    def shown(text: str | None) -> str:
        return redact(visible(text or ""), secrets, limit=_CHARACTERS) or "(nothing)"

    sections = []
    for result in cliffs:
        seen = [b for b in result.bins if b.n]
        if not seen or (any(b.mean for b in seen) and result.verdict is not Verdict.FLOOR):
            continue
        wrong = {
            row["example_id"]: row
            for row in read_answers(run, [result.model], [seen[0].bin]).to_pylist()
            if row["question"] and row["failure"] and row["failure"] not in UNSCORED_TAGS
        }
        rows = []
        for row in sorted(wrong.values(), key=lambda row: row["length_tokens"])[:_SHOWN]:
            texts = (row["question"], " | ".join(row["accepted"] or ()), row["answer"])
            rows.append((row["length_tokens"], *map(shown, texts)))
        more = f"contextcliff answers {run.study.name} --campaign {run.campaign} --wrong"
        title = ("What ", Code(result.model), " answered to the shortest documents")
        blocks: list[Block] = [Paragraph(["All wrong answers: ", Code(more)])]
        if rows and with_answers:
            blocks.insert(0, DataTable(_HEAD, rows))
        sections.append(Section(title, blocks, first=True))
    return sections


SCORES = ("em", "f1", "contained")


def other_scores(
    records: pd.DataFrame, bins: Sequence[BinResult], settings: AnalysisSettings, primary: str
) -> dict[str, list[BinMean]]:
    """Return score -> its means in ``bins``, with intervals over documents as for the primary.

    ``records``: EVAL_RECORDS of one model. Covers the `SCORES` in them except ``primary``. Bins are
    by length, and replicates are averaged.
    """
    by_score = {}
    starts = [b.edge_low for b in bins]
    for place, name in enumerate(SCORES):
        if name == primary or name not in records or not (known := records[name].notna()).any():
            continue
        rows = records.loc[known, ["example_id", "document_id", "length_tokens", name]]
        examples = rows.groupby("example_id", sort=True).agg(
            document=("document_id", "first"), length=("length_tokens", "min"), score=(name, "mean")
        )
        places = np.searchsorted(starts, examples["length"].to_numpy(), side="right") - 1
        scores = examples["score"].to_numpy(np.float64)
        means = []
        for i, b in enumerate(bins):
            inside = np.maximum(places, 0) == i
            _, document = np.unique(examples["document"].to_numpy()[inside], return_inverse=True)
            sums = np.bincount(document, scores[inside]).astype(np.float64)
            counts = np.bincount(document).astype(np.float64)
            mean = float(scores[inside].mean()) if len(document) else None
            interval = document_interval(counts, sums, settings, place, i)
            means.append(BinMean(b.bin, len(document), mean, *interval))
        by_score[name] = means
    return by_score


_UNVERIFIED = (
    "The server's certificate is not checked (`verify: false` in models.yaml): another server may "
    "have answered in its place."
)


def profile_campaign(
    run: StudyRun, records: pd.DataFrame, guests: Mapping[str, Experiment]
) -> list[ModelProfile]:
    """Analyse each model's records and write its ``metrics.json`` and ``cliffs.json``.

    Models come in the study's order, then others measured in the campaign. Profiles of another
    sample or request are removed.

    Raises:
        StoreError: there are no records.
    """
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model

    study, store, campaign, manifest = run.study, run.store, run.campaign, run.manifest
    entries, copied = load_models(), _copied(manifest)
    manifest.forget_documents()  # free the vocabulary before the analysis, which needs memory
    records = with_prompt_overhead(study, manifest, records)
    account = manifest.header["corpus"].get("account", {})
    profiles = []
    for model in in_order(study, records["model"].unique()):
        rows = records[records["model"] == model]
        identity = recorded_identity(run.ledger, study.name, campaign, model)
        fields: Mapping[str, Any] = identity.fields if identity else {}
        window = identity.window_tokens if identity else None
        if window is None and model in entries:
            window = entries[model].window_tokens
        made = provenance(study, manifest, rows, fields)
        folder = store.profile_dir(study.name, campaign, model)
        added = {name: guest.contribution(run, model) for name, guest in guests.items()}
        mixed = mixtures(rows, manifest.bins)
        fingerprints = [note] if (note := mixed.pop("system_fingerprint", None)) else []
        cut = truncations(record_rows(rows[list(COLUMNS)]))
        context = ProfileContext(
            model=model,
            study=study.name,
            campaign=campaign,
            task=study.task or _only(rows["task"]),
            tokenizer=study.tokenizer,
            identity=identity.hash if identity else _only(rows["identity_hash"]),
            window_tokens=window,
            score_name=study.scoring.primary,
            primary=study.scoring.primary,
            scorer_version=SCORER_VERSION,
            provenance=made
            | replaced(folder, made["hashes"])
            | ({"origins": origins} if (origins := origins_of(run, rows)) else {}),
            warnings=[
                *(f"{clause[:1].upper()}{clause[1:]}." for clause in account.get("cautions", ())),
                *(line for truncation in cut for line in unchecked(truncation)),
                *([_UNVERIFIED] if model in entries and not entries[model].verify else []),
                *fingerprints,
                *serving_notes(rows),
                *(line for guest in guests.values() for line in guest_origins(run, guest, model)),
            ],
            per_bin=int(rows.groupby("bin")["example_id"].nunique().max()),
            looks=looks_before(run, model, rows.loc[rows["score"].notna(), "example_id"].nunique()),
            copied_share=copied,
            controls=added.get("controls", ()),
            attention=added.get("attention_entropy"),
        )
        profile = profile_model(rows, manifest.bins, study.analysis_settings(), context)
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

    ``sections``: sections of the study's other experiments, shown last. Notes give the design's
    error rates if simulated (`contextcliff calibrate`), and name earlier caps by another method or
    other scorers, and models left out because they were measured with another sample or request.

    Raises:
        StoreError: no model is profiled yet, or the report cannot be written.
    """
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
        sections=[*at_floor, *kv_sections(run, cliffs), *sections],
        evidence=_evidence(run, cliffs, records),
    )


def _evidence(run: StudyRun, cliffs: Sequence[Cliffs], records: pd.DataFrame) -> Evidence:
    """Return other scores of each bin, and the answers if the run shows them."""
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
    """Return whether a running process has claimed calls with this serving identity."""
    asked = run.study.recipe(), run.campaign, run.study.bin_keys, EVERYTHING
    planned = plan_calls(run.manifest, identity or "", *asked)
    owners = run.ledger.claimed(call.call_key for call in planned).values()
    return not all(map(run.ledger.release_dead, set(owners)))


def _copied(manifest: Manifest) -> float | None:
    """Return the fraction of the sample's questions with copyable answers; see `copied_share`.

    Questions that need two passages of the document do not count.
    """
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


LEAST_OF_EACH = 30
"""Least number of answers per server to show the scores of two servers separately."""
_MOST_WORDS = 300

_IN_THOUGHTS = (
    "The server sends the answers as thoughts (`reasoning_content`) and leaves their own place "
    "empty: they are taken from there."
)

_NOUNS = dict(zip(WHO_ANSWERED, ("model", "provider", "system fingerprint"), strict=True))


def mixtures(own: pd.DataFrame, bins: Sequence[LengthBin]) -> dict[str, str]:
    """Return a sentence for each of `WHO_ANSWERED` that varies in a model's ``own`` records."""
    extras = _extras(own)
    sentences = {
        name: _mixture(own, noun, extras[name].dropna(), bins)
        for name, noun in _NOUNS.items()
        if name in extras
    }
    return {name: sentence for name, sentence in sentences.items() if sentence}


def serving_notes(own: pd.DataFrame) -> list[str]:
    """Return further notes on a model's server, from its ``own`` records."""
    extras = _extras(own)
    in_thoughts = ANSWER_IN in extras and extras[ANSWER_IN].eq("thoughts").any()
    notes = [_IN_THOUGHTS] if in_thoughts else []
    batched = int(extras[ASKED_BY].eq("batch").sum()) if ASKED_BY in extras else 0
    if batched:
        notes.append(f"Latency: not measured (batch) for {batched:,} of {len(own):,} calls.")
    if unknown := int((own["finish_reason"] == UNKNOWN_FINISH).sum()):
        notes.append(
            f"{unknown:,} of {len(own):,} answers ended without a finish reason: whether the "
            "output limit cut them is unknown."
        )
    too_long, lost = (own[own["failure"] == tag] for tag in ("context_overflow", "transport_error"))
    if error := _most_common(too_long):
        shortest = int(too_long["length_tokens"].min())
        notes.append(f"Documents of {shortest:,} tokens and more did not fit: {error}")
    if error := _most_common(lost):
        notes.append(f"{len(lost):,} of {len(own):,} calls failed on the way, most often: {error}")
    return notes


def _extras(own: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    told = own["extra"].dropna()
    return pd.DataFrame([json.loads(extra) for extra in told], index=told.index)


def _mixture(own: pd.DataFrame, noun: str, names: pd.Series[Any], bins: Sequence[LengthBin]) -> str:
    """Return a note that several sources answered, with their scores if answers suffice."""
    answers = names.value_counts()
    if len(answers) < 2:
        return ""
    names_shown = [name for name, count in answers.items() if count >= LEAST_OF_EACH]
    curves = [_curve(own.loc[names.index[names == name]], str(name), bins) for name in names_shown]
    who = ", ".join(f"{name} ({count:,})" for name, count in answers.head(5).items())
    note = f"More than one {noun} answered: {who}. The number is of them all, so of none."
    if len(names_shown) > 1 and noun != "system fingerprint":
        note += f" Mean score by length bin, short to long: {'; '.join(curves)}."
    return note


def _curve(rows: pd.DataFrame, name: str, bins: Sequence[LengthBin]) -> str:
    means = rows.groupby("bin")["score"].mean()
    return f"{name} {', '.join(f'{means[b.bin]:.2f}' for b in bins if b.bin in means.index)}"


def _most_common(rows: pd.DataFrame) -> str:
    """Return the most frequent error, ignoring numbers, in the words of one call."""
    messages = rows["error"].dropna()
    if messages.empty:
        return ""
    (words, _), *_ = Counter(map(same_words, messages)).most_common(1)
    first = next(message for message in messages if same_words(message) == words)
    return first if len(first) <= _MOST_WORDS else f"{first[:_MOST_WORDS]} ..."


def policy_of(name: str, models: Mapping[str, ModelEntry] | None = None) -> KvPolicy | None:
    """Return the KV cache policy of model ``name``; None if its entry is gone.

    The base of an entry with a policy is the first entry of models.yaml with the same weights and
    no policy.
    """
    models = load_models() if models is None else models
    try:
        entry = get_model(name, models)
    except StudyError:
        gone = parse_kv_variant(name)
        return KvPolicy(*gone) if gone else None
    variant = kv_of(entry)
    if variant is None:
        policy = "none" if entry.engine == "kvpress" else UNPRESSED
        return KvPolicy(name, policy)
    base = variant.base if variant.base != name else _same_weights(entry, models)
    return KvPolicy(base, variant.policy, variant.budget)


def _same_weights(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> str:
    source = (entry.weights, entry.model_id)
    alike = (
        other.name
        for other in models.values()
        if (other.weights, other.model_id) == source and kv_of(other) is None
    )
    return next(alike, entry.name)


def baseline_of(name: str, among: Mapping[str, KvPolicy]) -> str | None:
    """Return the reference model for ``name`` in ``among``; None if there is none.

    Prefers the model that `kv_variants.kv_baseline` names, if measured, to another of the same base
    that keeps the whole cache.
    """
    kv = among[name]
    if kv.keeps_all:
        return None
    whole = [m for m, other in among.items() if other.base == kv.base and other.keeps_all]
    try:
        named = kv_baseline(get_model(kv.base), kv.policy)
    except StudyError:
        named = f"{kv.base}+none" if kv.policy in POLICIES else kv.base
    if named in among and named != name:
        return named
    return next(iter(whole), None)


def kv_sections(run: StudyRun, cliffs: Sequence[Cliffs]) -> list[Section]:
    """Compare the KV policies of each model measured under several; a section for each model."""
    models = load_models()
    among = {c.model: kv for c in cliffs if (kv := policy_of(c.model, models)) is not None}
    baselines = {name: whole for name in among if (whole := baseline_of(name, among)) is not None}
    bases = dict.fromkeys(among[name].base for name in baselines)
    if not bases:
        return []
    from contextcliff_dagster.analysis.comparison import Measured
    from contextcliff_dagster.analysis.kv_family import kv_family
    from contextcliff_dagster.reporting.kv import policy_sections

    records = read_records(run.study, run.store, run.campaign)
    rows = dict(iter(records.groupby("model", sort=False)))
    families = [
        kv_family(
            [
                Measured(c.model, rows[c.model], c, kv)
                for c in cliffs
                if c.model in rows and (kv := among.get(c.model)) is not None and kv.base == base
            ],
            baselines,
            run.manifest.bins,
            run.study.analysis_settings(),
        )
        for base in bases
    ]
    return policy_sections(families)
