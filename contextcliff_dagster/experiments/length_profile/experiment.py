"""The length profile: the score over the natural length of documents, and where it falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.experiments.common.experiment import (
    Alarm,
    Analysis,
    CheckOutcome,
    CheckSpec,
    Experiment,
    Source,
    Step,
)
from contextcliff_dagster.experiments.common.record_checks import RECORD_CHECKS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.experiments.length_profile.regression import Regression
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.studies import Study

PLATEAU_FLOOR = 0.5
"""Below this baseline a further drop says little about length: the task itself is too hard."""

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
"""What must hold before a length profile is believed."""


class LengthProfile(Experiment):
    """Every study with a corpus measures it: documents of that corpus, whole, by length bin."""

    name = "length_profile"
    section = None
    dimension = "tokens"
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

    def cells(self, study: Study) -> tuple[str, ...]:
        return study.bin_keys

    def sources(self, run: StudyRun) -> Sequence[Source]:
        return [Source(run.manifest)]

    def merged_cells(self, run: StudyRun) -> Mapping[str, str | None]:
        return {bin.bin: bin.merged_into for bin in run.manifest.bins}

    def score_campaign(self, run: StudyRun) -> pa.Table:
        """Score the bins that are predicted; those of an earlier sample or request are replaced."""
        from contextcliff_dagster.experiments.length_profile import scored_records

        return scored_records.score_campaign(run, self)

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        """Profile each model; compare the campaign with the baseline; plan the next round."""
        from contextcliff_dagster.experiments.length_profile.adaptive_rounds import next_rounds
        from contextcliff_dagster.experiments.length_profile.profile_and_report import (
            profile_campaign,
        )
        from contextcliff_dagster.experiments.length_profile.regression import (
            judge_regression,
            with_changes,
        )
        from contextcliff_dagster.experiments.length_profile.regression_page import write_regression

        profiles = profile_campaign(run, records, contributions)
        regression = judge_regression(run.study, run.store, run.manifest, run.campaign)
        regression = with_changes(regression, run.study, run.ledger)
        cliffs = [profile.cliffs for profile in profiles]
        page = write_regression(regression, run.study, run.store)
        return Analysis(
            cliffs,
            checks=[check_plateau(cliffs), check_shrink(regression, page)],
            alarm=shrink_alarm(regression),
            extra={"rounds": next_rounds(run.study, run.store, run.manifest, run.campaign)},
        )

    def write_results(self, run: StudyRun, analysis: Analysis) -> None:
        """Nothing to do: each profile is written as soon as it is made (`profile_campaign`)."""

    def read_results(self, run: StudyRun) -> Sequence[Cliffs]:
        from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs

        return read_cliffs(run.study, run.store, run.campaign)

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
    """Return whether each model has a baseline that a drop could be seen from."""
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
    """Return whether every model was judged and none has become worse than in the baseline.

    Skipped where there is no other campaign to compare with. ``page``: where the comparison is
    shown.
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
    """Return what the alert channels get; None where no model has become worse."""
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
