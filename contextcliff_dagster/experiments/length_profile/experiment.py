"""The length profile: the score by natural document length, and where it drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.experiments.common.experiment import (
    Alarm,
    Analysis,
    CheckOutcome,
    CheckSpec,
    Experiment,
    Source,
    Step,
)
from contextcliff_dagster.experiments.common.records import RECORD_CHECKS, read_records
from contextcliff_dagster.experiments.common.study_run import StudyRun, open_ledger
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.analysis.design.allocation import Round, Target
    from contextcliff_dagster.experiments.length_profile.regression import Regression
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section


def plan_rounds(
    study: Study, store: Store, manifest: Manifest, campaign: str, target: Target
) -> dict[str, Round]:
    """Plan the next round for each model of ``study``, in the study's order.

    Each bin has at most the study's samples. Unreadable records count as missing: their answers are
    in the ledger, and asking again costs nothing.
    """
    from contextcliff_dagster.analysis.design.allocation import plan_round
    from contextcliff_dagster.analysis.records import Documents, clean_records

    planned = {
        b.bin: manifest.planned(b.bin, study.sampling.samples_per_bin)
        for b in manifest.bins
        if b.merged_into is None
    }
    candidates = {
        bin: np.array([sample.length_tokens for sample in samples], dtype=np.int64)
        for bin, samples in planned.items()
    }
    bin_of = {s.example.example_id: bin for bin, samples in planned.items() for s in samples}
    records = None
    with suppress(StoreError):  # none is written yet
        records = read_records(study, store, campaign)
        with open_ledger(store, to_read=True) as ledger:  # imported answers are asked for again
            keys = records["call_key"]
            foreign = ledger.imported(keys, study.name).keys() - ledger.answered(keys)
        records = records[~keys.isin(foreign)]
    nothing = Documents(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), True)
    settings = study.analysis_settings()
    recipe = study.recipe().hash
    rounds = {}
    for model in study.models:
        asked: dict[str, int] = {}
        documents = nothing
        if records is not None:
            # Answers to another sample or request do not count.
            current = records["example_id"].isin(bin_of) & (records["recipe_hash"] == recipe)
            rows = records[current & (records["model"] == model)]
            if len(rows):
                ids = rows["example_id"].drop_duplicates()
                asked = {str(k): int(n) for k, n in ids.map(bin_of).value_counts().items()}
                documents = clean_records(rows, manifest.bins, settings.chance).documents()
        rounds[model] = plan_round(documents, candidates, asked, target, settings)
    return rounds


def next_rounds(
    study: Study, store: Store, manifest: Manifest, campaign: str
) -> dict[str, dict[str, Any]]:
    """Return JSON-ready plans for a study with a section `targeted`, each with a reason ``why``.

    Empty for any other study.
    """
    if study.targeted is None:
        return {}
    target = study.target_of_rounds()
    plans = plan_rounds(study, store, manifest, campaign, target)
    return {
        model: {**plan.to_dict(), "why": plan.sentence(plan.number(target))}
        for model, plan in plans.items()
    }


PLATEAU_FLOOR = 0.5
"""Below this baseline a drop says little about length, because the task itself is too hard."""

CHECKS = (
    *RECORD_CHECKS,
    CheckSpec(
        "plateau",
        "Each model can do the task on its shortest documents, so a drop can be measured.",
        of="result",
    ),
    CheckSpec(
        "no_shrink",
        "No model has become worse than in the pinned baseline, beyond noise; skipped where no "
        "baseline is pinned, and in the baseline itself.",
        of="result",
    ),
)
"""Conditions that a length profile must meet."""


class LengthProfile(Experiment):
    """Every study with a corpus measures it: documents of that corpus, whole, by length bin."""

    name = "length_profile"
    section = None
    by_bins = True
    result_op = "profile"
    description = (
        "What each model answered, one row per planned call; a paid call is never made twice."
    )
    result_descriptions: ClassVar[Mapping[str, str]] = {
        "metrics": "Per length bin: mean, variance, instability, failure rate, latency.",
        "cliffs": "Verdict, safe context cap and cliff of each model, with the evidence for them.",
    }
    checks = CHECKS

    _ASSETS: ClassVar[Mapping[Step, tuple[str, ...]]] = {
        "predictions": ("predictions",),
        "records": ("eval_records",),
        "result": ("metrics", "cliffs"),
        "report": ("report",),
    }

    def asset_names(self, step: Step) -> tuple[str, ...]:
        return self._ASSETS[step]

    def is_asked(self, study: Study) -> bool:
        return study.has_corpus

    def sources(self, run: StudyRun) -> Sequence[Source]:
        return [Source(run.manifest)]

    def merged_cells(self, run: StudyRun) -> Mapping[str, str | None]:
        return {bin.bin: bin.merged_into for bin in run.manifest.bins}

    def score_campaign(self, run: StudyRun) -> pa.Table:
        """Score the bins that have predictions, replacing those of an earlier sample or request."""
        from contextcliff_dagster.experiments.length_profile import scored_records

        return scored_records.score_campaign(run, self)

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        """Profile each model; compare the campaign with the baseline; plan the next round."""
        from contextcliff_dagster.experiments.length_profile.profile_and_report import (
            profile_campaign,
        )
        from contextcliff_dagster.experiments.length_profile.regression import (
            regression_of,
            write_regression,
        )

        profiles = profile_campaign(run, records, contributions)
        regression = regression_of(run)
        write_regression(regression, run.study, run.store)
        return Analysis(
            [profile.cliffs for profile in profiles],
            alarm=shrink_alarm(regression),
            extra={"rounds": next_rounds(run.study, run.store, run.manifest, run.campaign)},
        )

    def write_results(self, run: StudyRun, analysis: Analysis) -> None:
        """Do nothing: `profile_campaign` writes each profile when it is made."""

    def read_results(self, run: StudyRun) -> Sequence[Cliffs]:
        from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs

        return read_cliffs(run.study, run.store, run.campaign)

    def check_results(self, run: StudyRun) -> Sequence[CheckOutcome]:
        from contextcliff_dagster.experiments.length_profile.regression import (
            regression_of,
            regression_page,
        )

        page = regression_page(run.study, run.store, run.campaign)
        return [
            check_plateau(self.read_results(run)),
            check_shrink(regression_of(run), page if page.is_file() else None),
        ]

    def has_page(self, study: Study) -> bool:
        return True

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        from contextcliff_dagster.experiments.length_profile import profile_and_report

        return profile_and_report.report_campaign(run, others)

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        if step == "result":
            names = {"analysis", "latency", "targeted", "regression"}
            return {**study.model_dump(mode="json", include=names), "method": METHOD_VERSION}
        return super().depends_on(study, step)


def check_plateau(cliffs: Sequence[Cliffs]) -> CheckOutcome:
    """Check that each model has a baseline high enough to show a drop."""
    baselines = {result.model: result.baseline.mean for result in cliffs}
    low = {m: mean for m, mean in baselines.items() if mean is None or mean < PLATEAU_FLOOR}
    why = "; ".join(
        f"{model}: no baseline" if mean is None else f"{model}: baseline {mean:.2f}"
        for model, mean in low.items()
    )
    return CheckOutcome(
        "plateau",
        not low,
        why or f"every baseline is at least {PLATEAU_FLOOR:.2f}",
        values={"below": len(low)},
    )


def check_shrink(regression: Regression, page: Path | None = None) -> CheckOutcome:
    """Check that every model was judged and none is worse than in the baseline.

    Skipped if there is no other campaign to compare with. ``page``: path of the comparison's
    page.
    """
    if regression.baseline in (None, regression.campaign):
        return CheckOutcome("no_shrink", None, regression.sentence)
    rows = [
        {"model": model, **{name: value for name, value in asdict(shrink).items() if name != "n"}}
        for model, shrink in regression.shrinks.items()
    ]
    return CheckOutcome(
        "no_shrink",
        not regression.shrunk and not regression.unjudged,
        regression.sentence,
        error=bool(regression.shrunk),
        values={
            "baseline": regression.baseline,
            "campaign": regression.campaign,
            **({"regression.html": page} if page else {}),
        },
        rows={"models": rows} if rows else {},
    )


def shrink_alarm(regression: Regression) -> Alarm | None:
    """Return the alert for the channels; None if no model has become worse."""
    if not regression.shrunk:
        return None
    return Alarm(
        "no_shrink_failed",
        regression.campaign,
        regression.shrunk,
        regression.sentence,
        regression.to_dict(),
    )


LENGTH_PROFILE = LengthProfile()
