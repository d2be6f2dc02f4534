"""A study's design for simulation, from its sample and records if they exist.

Its error rates are kept in ``<study>/calibration.json``; the study's report quotes them while they
are valid: for the simulated sample, tolerance, confidence and code.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.analysis.cliff import baseline_of
from contextcliff_dagster.analysis.design.error_rates import Calibration, Design, Plan, describe
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster.analysis.statistics.intervals import (
    LEAST_REPEATED,
    intraclass_correlation,
)
from contextcliff_dagster.contracts import (
    SCHEMA_VERSION,
    ContextCliffError,
    StoreError,
    StudyError,
    package_version,
)
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import PACKAGE, Store, write_json
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import require_length_profile

if TYPE_CHECKING:
    import pandas as pd


BASELINE = 0.55
"""Default baseline without a measurement; `Design` has the other defaults."""
LEAST_BASELINE, MOST_BASELINE = 0.10, 0.99
_POOL = 2_000

Sample = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class DesignOverrides:
    """Replacements for parts of the design; None keeps the study's, sample's or records' value."""

    per_bin: int | None = None
    bins: int | None = None
    questions: tuple[int, int] | None = None
    binary: bool | None = None
    correlation: float | None = None
    baseline: float | None = None


@dataclass(frozen=True)
class DesignBasis:
    """A plan and, in words, the sources of its parts.

    ``own``: whether the plan is the study's own sample, or its design if it has no sample;
    ``frozen``: whether it is the frozen sample.
    """

    plan: Plan
    sources: dict[str, str]
    own: bool
    frozen: bool


@dataclass(frozen=True, slots=True)
class Pilot:
    """The scores of a campaign's records: means over its models."""

    campaign: str
    models: tuple[str, ...]
    examples: int
    baseline: float
    correlation: float | None
    correlation_words: str
    binary: bool


def plain_plan(overrides: DesignOverrides) -> DesignBasis:
    """Return the simulation plan of a design without a study."""
    given = {name: value for name, value in asdict(overrides).items() if value is not None}
    baseline = given.pop("baseline", BASELINE)
    design = Design(**{"binary": True, **given})
    design = replace(design, pool=max(_POOL, 2 * design.bins * design.per_bin))
    sources = {
        "sample": "log-normal lengths",
        "baseline": "assumed" if overrides.baseline is None else "given",
        "correlation": "assumed" if overrides.correlation is None else "given",
    }
    return DesignBasis(Plan(design, baseline), sources, own=False, frozen=False)


def study_plan(study: Study, store: Store, overrides: DesignOverrides) -> DesignBasis:
    """Return the plan of ``study``, from its frozen sample and newest records, if any.

    Raises:
        StudyError: the records' baseline is so low that every verdict is `floor`, or the study has
            no corpus.
        StoreError: the sample or a table of records is damaged.
    """
    from contextcliff_dagster.experiments.common.preparation import as_drawn, find_frozen

    require_length_profile(study)
    manifest = find_frozen(as_drawn(study, store), store)
    pilot = read_pilot(study, store, manifest)
    if pilot is not None and overrides.baseline is None and pilot.baseline < LEAST_BASELINE:
        raise StudyError(
            f"The baseline measured in campaign {pilot.campaign} is {pilot.baseline:.2f}: below "
            f"{LEAST_BASELINE:.2f} every verdict is `floor`, whatever the design; fix the task or "
            "give --baseline."
        )
    binary = study.scoring.primary != "f1" if pilot is None else pilot.binary
    overridden = replace(
        overrides,
        per_bin=overrides.per_bin or study.sampling.samples_per_bin,
        bins=overrides.bins or study.bins.count,
        questions=overrides.questions or (1, study.sampling.questions_per_document),
        binary=binary if overrides.binary is None else overrides.binary,
    )
    basis = plain_plan(overridden)
    design, sources = replace(basis.plan.design, replicates=study.prompt.replicates), basis.sources
    baseline, sample = basis.plan.baseline, None
    if pilot is not None and overrides.baseline is None:
        baseline = min(pilot.baseline, MOST_BASELINE)
        sources["baseline"] = (
            f"estimated from {pilot.examples:,} answers of {', '.join(pilot.models)} in campaign "
            f"{pilot.campaign}"
        )
    if pilot is not None and overrides.correlation is None:
        sources["correlation"] = pilot.correlation_words
        if pilot.correlation is not None:
            design = replace(design, correlation=pilot.correlation)
    same_documents = overrides.bins is None and overrides.questions is None
    is_same = same_documents and design.binary == binary
    if manifest is None:
        is_same = is_same and design.per_bin == study.sampling.samples_per_bin
    elif same_documents:
        sample, stretched = frozen_sample(manifest, design.per_bin)
        is_same = is_same and not stretched
        sources["sample"] = "the study's frozen sample" + (
            ", its lengths spread over more documents" if stretched else ""
        )
    else:
        lengths = np.array(manifest.examples["length_tokens"].to_pylist(), np.float64)
        design = replace(design, log_sd=float(np.log(np.maximum(lengths, 1.0)).std()))
        sources["sample"] = "log-normal lengths as spread as the study's frozen sample"
    plan = replace(basis.plan, design=design, baseline=baseline, sample=sample)
    return DesignBasis(plan, sources, is_same, frozen=manifest is not None)


def frozen_sample(manifest: Manifest, per_bin: int) -> tuple[Sample, bool]:
    """Return tokens and questions per document for each bin's first ``per_bin`` examples.

    If the sample was frozen with fewer, documents with interpolated lengths fill it up; then the
    second value is True.
    """
    rows = manifest.examples.select(["document_id", "length_tokens", "bin", "rank"]).to_pylist()
    frozen = int(manifest.header.get("samples_per_bin", per_bin))
    stretched = frozen < per_bin
    documents: list[tuple[int, int]] = []
    for bin in dict.fromkeys(row["bin"] for row in rows):
        examples_taken = [row for row in rows if row["bin"] == bin and row["rank"] < per_bin]
        questions_on = Counter((row["length_tokens"], row["document_id"]) for row in examples_taken)
        lengths_drawn = sorted((length, n) for (length, _), n in questions_on.items())
        documents += _stretch(lengths_drawn, per_bin) if stretched else lengths_drawn
    lengths, questions = zip(*sorted(documents), strict=True)
    return (tuple(max(int(n), 1) for n in lengths), tuple(map(int, questions))), stretched


def _stretch(documents: Sequence[tuple[int, int]], wanted: int) -> list[tuple[int, int]]:
    lengths = np.array([length for length, _ in documents], np.float64)
    have = sum(n for _, n in documents)
    count = min(max(round(len(documents) * wanted / have), 1), wanted)
    between = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(lengths)), lengths)
    each, more = divmod(wanted, count)
    return [(round(x), each + (i < more)) for i, x in enumerate(between)]


def read_pilot(study: Study, store: Store, manifest: Manifest | None) -> Pilot | None:
    """Return the newest campaign with records as a pilot; None without answers of this sample."""
    from contextcliff_dagster.experiments.common.records import read_records

    campaign = _newest_records(study, store)
    if manifest is None or campaign is None:
        return None
    try:
        records = read_records(study, store, campaign)
    except StoreError:
        return None
    records = records[records["example_id"].isin(manifest.examples["example_id"].to_pylist())]
    return pilot_of(records, manifest, study.analysis_settings(), campaign)


def pilot_of(
    records: pd.DataFrame, manifest: Manifest, settings: AnalysisSettings, campaign: str
) -> Pilot | None:
    """Return mean baseline and correlation of ``records`` over models; None without answers."""
    means, likeness, models, examples, binary = [], [], [], 0, True
    for model, rows in records.groupby("model", sort=True):
        sample = clean_records(rows, manifest.bins)
        if not len(sample.examples):
            continue
        answered = sample.examples
        models.append(str(model))
        baseline = baseline_of(sample.documents(), settings).mean
        assert baseline is not None  # a sample has examples
        means.append(baseline)
        examples += len(answered)
        scores = sample.calls.loc[sample.calls["answered"], "score"]
        binary = binary and bool(scores.isin([0.0, 1.0]).all())
        estimate = intraclass_correlation(
            answered["document"].to_numpy(np.int64),
            answered["score"].to_numpy(np.float64),
            answered["bin_index"].to_numpy(np.int64),
        )
        if estimate is not None:
            likeness.append(estimate)
    if not models:
        return None
    words = (
        f"assumed: fewer than {LEAST_REPEATED} documents of campaign {campaign} have several "
        "questions, or all score alike"
    )
    correlation = None
    if likeness:
        correlation = float(np.mean([estimate.value for estimate in likeness]))
        ranges = "; ".join(f"{estimate.low:.2f} to {estimate.high:.2f}" for estimate in likeness)
        words = (
            f"estimated from {likeness[0].repeated} documents with several questions "
            f"(95%: {ranges})"
        )
    return Pilot(
        campaign, tuple(models), examples, float(np.mean(means)), correlation, words, binary
    )


def _newest_records(study: Study, store: Store) -> str | None:
    """Return the newest campaign with records, except sentinel campaigns."""
    from contextcliff_dagster.inference.ledger.campaigns import SENTINEL, list_campaigns
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    folder = store.campaign_dir("eval_records", study.name, "x").parent
    names = (path.name.removeprefix("campaign=") for path in folder.glob("campaign=*"))
    there = {name for name in names if not name.startswith(SENTINEL)}
    if not there or not store.has_ledger:
        return max(there, default=None)
    with Ledger.open(store.ledger) as ledger:
        begun = [c.name for c in list_campaigns(ledger, study.name) if c.name in there]
    return begun[-1] if begun else max(there)


_NEARLY = 0.1
"""Largest accepted relative difference between the numbers of simulated and scored examples."""


def as_result(
    basis: DesignBasis, calibration: Calibration, settings: AnalysisSettings, study: str | None
) -> dict[str, Any]:
    """Return the simulated design, its inputs and its results as a JSON object."""
    return {
        "schema_version": SCHEMA_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "study": study,
        "design": describe(basis.plan),
        "sources": basis.sources,
        "tolerance": settings.tolerance,
        "confidence": settings.confidence,
        "chance": settings.chance,
        **asdict(calibration),
        "versions": versions(),
    }


def keep(store: Store, study: Study, result: Mapping[str, Any]) -> Path:
    """Write ``result`` next to the study.

    Raises:
        StoreError: it cannot be written.
    """
    path = store.calibration_file(study.name)
    write_json(path, result)
    return path


def quoted(study: Study, store: Store, manifest: Manifest, cliffs: Sequence[Cliffs]) -> list[str]:
    """Return a sentence on the design's error rates, if simulated for this measurement."""
    from contextcliff_dagster.reporting.design_error_rates import quote

    try:
        result = json.loads(store.calibration_file(study.name).read_bytes())
        return [quote(result)] if _holds(result, study, manifest, cliffs) else []
    except (OSError, ValueError, KeyError, TypeError, StopIteration, ContextCliffError):
        return []  # missing or damaged: the report omits it


def _holds(
    result: Mapping[str, Any], study: Study, manifest: Manifest, cliffs: Sequence[Cliffs]
) -> bool:
    design, analysis = result["design"], study.analysis
    settings = [result["versions"], result["tolerance"], result["confidence"]]
    current = [versions(), analysis.tolerance, analysis.confidence]
    if [*settings, result.get("chance", 0.0)] != [*current, analysis.chance]:
        return False
    same = Design(
        bins=study.bins.count,
        per_bin=design["per_bin"],
        questions=(1, study.sampling.questions_per_document),
        pool=None,
        binary=design["binary"],
        replicates=study.prompt.replicates,
    )
    sample, stretched = frozen_sample(manifest, same.per_bin)
    if stretched or describe(Plan(same, 0.5, sample))["sha256"] != design["sha256"]:
        return False
    examples = design["examples"]
    return all(abs(of.n - examples) <= _NEARLY * examples for of in cliffs)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions for which the rates are valid: program, and hash of analysis code."""
    digest = hashlib.sha256()
    for path in sorted((PACKAGE / "analysis").rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    program = package_version("contextcliff-dagster") or "unknown"
    return {"contextcliff-dagster": program, "analysis": digest.hexdigest()[:16]}
