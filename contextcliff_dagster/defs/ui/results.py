"""What the UI shows of an experiment's records, results and report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.defs.ui.partition_table import partition_rows
from contextcliff_dagster.defs.ui.rendering import (
    MOST_CELLS,
    curve_line,
    inline,
    long_text,
    pictures,
    table,
)
from contextcliff_dagster.experiments.common.experiment import Analysis, Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import partitioned
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.reporting.report_files import ReportFiles

Metadata = dict[str, Any]
_PLOTTED = 150
"""Numbers that the UI plots, at some 160 bytes of every materialization each."""
_SHOWN_FIELDS = 12
"""Of a result of any experiment: the UI's tables scroll sideways beyond."""


def records_metadata(run: StudyRun, experiment: Experiment, records: pa.Table) -> Metadata:
    """Counts, what stands behind each partition key, mean scores, failures by tag."""
    folder = run.store.campaign_dir(experiment.records.name, run.study.name, run.campaign)
    columns = [([], "count_all"), ("score", "mean"), ("score", "count"), ("failed", "sum")]
    by = ["model", "bin"]
    cells = records.group_by(by).aggregate(columns)
    if len(cells) > MOST_CELLS:
        by = ["model"]
        cells = records.group_by(by).aggregate(columns)
    summary = [
        {
            **{name: cell[name] for name in by},
            "n": cell["count_all"],
            "mean score": cell["score_mean"],
            "failed": cell["failed_sum"] or 0,
            "not scored": cell["count_all"] - cell["score_count"],
        }
        for cell in cells.sort_by([(name, "ascending") for name in by]).to_pylist()
    ]
    tags = Counter(filter(None, records["failure"].to_pylist()))
    return {
        "dagster/row_count": records.num_rows,
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(folder)),
        "partitions": table(partition_rows(run, experiment, records)),
        f"by_{'_and_'.join(by)}": table(summary),
        "failures": table([{"failure": tag, "n": n} for tag, n in tags.most_common()]),
        **{f"failure/{tag}": n for tag, n in sorted(tags.items())},
    }


def result_metadata(
    run: StudyRun, experiment: Experiment, analysis: Analysis
) -> dict[str, Metadata]:
    """Asset -> its metadata, for each asset that the result has, in their order."""
    if experiment.name == "length_profile":
        rounds = analysis.extra["rounds"]
        return {
            "metrics": _metrics_metadata(run, analysis.results),
            "cliffs": _cliffs_metadata(run, analysis.results) | _rounds_metadata(rounds),
        }
    path = run.store.results_file(run.study.name, run.campaign, experiment.name)
    rows = [dict(experiment.overview(one)) or _scalars(one) for one in analysis.results]
    shown = {
        **_summary(_headlines(experiment, analysis.results)),
        "dagster/row_count": len(rows),
        "campaign": run.campaign,
        "results": table(rows),
        "path": dg.MetadataValue.path(str(path)),
        **_plotted(
            (f"{_key(name)}/{slug(str(row.get('model', number)))}", value)
            for number, row in enumerate(rows)
            for name, value in row.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ),
    }
    return dict.fromkeys(experiment.asset_names("result"), shown)


def report_metadata(run: StudyRun, files: ReportFiles) -> Metadata:
    """The verdicts in place; the picture and the whole text behind a click; where the pages lie."""
    shown: Metadata = {
        "report": long_text(files.md.read_text(encoding="utf-8"), files.md),
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(files.md.parent)),
    }
    for page in (files.html, files.html.with_name("regression.html")):
        if page.is_file():
            shown[page.name] = dg.MetadataValue.path(str(page))
    if run.study.track is not None:
        from contextcliff_dagster.experiments.tracking.tracker import tracked_lines

        shown["tracker"] = " ".join(tracked_lines(run.store, run.study, run.campaign))
    if files.png is None:
        lines = [
            line
            for experiment in partitioned(run.study)
            for line in _headlines(experiment, experiment.read_results(run))
        ]
        named = re.findall(r"\]\(([^()/]+)\.png\)", files.md.read_text(encoding="utf-8"))
        files_named = [files.md.with_name(f"{name}.png") for name in named]
        drawn = {f"picture/{name}": value for name, value in pictures(files_named).items()}
        return {**_summary(lines), **drawn, **shown}
    cliffs = LENGTH_PROFILE.read_results(run)
    return {
        "summary": inline(curve_line(result) for result in cliffs),
        "picture": pictures([files.png])[files.png.stem],
        **shown,
    }


def _plotted(numbers: Iterable[tuple[str, Any]]) -> Metadata:
    return dict(islice(numbers, _PLOTTED))


def _headlines(experiment: Experiment, results: Sequence[Any]) -> list[str]:
    """One line of Markdown a result, where it has a headline."""
    lines = []
    for result in results:
        model = getattr(result, "model", None)
        if sentences := experiment.headline(result):
            lines.append(" ".join([*([f"**{model}**:"] if model else []), sentences[0]]))
    return lines


def _summary(lines: Sequence[str]) -> Metadata:
    return {"summary": inline(lines)} if lines else {}


def _key(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")


def _metrics_metadata(run: StudyRun, cliffs: Sequence[Cliffs]) -> Metadata:
    rows = [
        {
            "model": result.model,
            "bin": bin.bin,
            "tokens (median)": bin.median_tokens,
            "n": bin.n,
            "mean": bin.mean,
            "ci low": bin.ci_low,
            "ci high": bin.ci_high,
            "sd": bin.sd,
            "failure rate": bin.failure_rate,
            "ttft p50 ms": bin.ttft_ms and bin.ttft_ms.p50,
            "missing": bin.missing,
        }
        for result in cliffs
        for bin in result.bins
    ]
    return {
        "dagster/row_count": len(rows),
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(run.store.profiles_dir(run.study.name, run.campaign))),
        "bins": table(rows),
    }


def _cliffs_metadata(run: StudyRun, cliffs: Sequence[Cliffs]) -> Metadata:
    """Verdict and cap per model; numbers under keys of their own, so that the UI plots them."""
    numbers = _plotted(
        (f"{name}/{slug(result.model)}", value)
        for result in cliffs
        for name, value in (
            ("safe_cap_tokens", result.safe_cap_tokens),
            ("baseline_mean", result.baseline.mean),
            ("verdict", result.verdict.value),
        )
        if value is not None
    )
    if cliffs:  # a step in a plot may be the method's own
        numbers["method_version"] = cliffs[-1].method_version or "1"
    return {
        "summary": inline(curve_line(result) for result in cliffs),
        "campaign": run.campaign,
        "verdicts": table([_verdict_row(result) for result in cliffs]),
        "path": dg.MetadataValue.path(str(run.store.profiles_dir(run.study.name, run.campaign))),
        "dagster/row_count": len(cliffs),
        **numbers,
    }


def _rounds_metadata(rounds: Mapping[str, Mapping[str, Any]]) -> Metadata:
    """What is asked next of each model and why; nothing for a study that is not measured so."""
    if not rounds:
        return {}
    return {
        "next_round": dg.MetadataValue.json({m: dict(of) for m, of in rounds.items()}),
        **_plotted((f"round/{slug(model)}", str(of["why"])) for model, of in rounds.items()),
        **_plotted((f"examples_asked/{slug(m)}", int(of["asked"])) for m, of in rounds.items()),
    }


def _verdict_row(result: Cliffs) -> dict[str, Any]:
    cliff = result.cliff
    return {
        "model": result.model,
        "verdict": result.verdict.value,
        "safe cap (tokens)": result.safe_cap_tokens,
        "confidence": result.confidence,
        "n": result.n,
        "cliff at (tokens)": cliff and cliff.location_tokens,
        "between": cliff and cliff.ci_low,
        "and": cliff and cliff.ci_high,
        "missing share": result.missing_share,
        "why": result.safe_cap_reason,
    }


def _scalars(result: Any) -> dict[str, Any]:
    scalars = (
        (name, value)
        for name, value in to_json(result).items()
        if value is None or isinstance(value, str | int | float)
    )
    return dict(islice(scalars, _SHOWN_FIELDS))
