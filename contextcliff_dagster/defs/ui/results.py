"""Metadata of an experiment's partitions, records, results and report in the UI."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg

from contextcliff_dagster.contracts import MANIFEST_EXAMPLES, LengthBin, Table
from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.defs.asset_specs import asset_key
from contextcliff_dagster.defs.ui.rendering import (
    MOST_CELLS,
    column_lineage,
    curve_line,
    inline,
    long_text,
    page,
    picture,
    pictures,
    table,
)
from contextcliff_dagster.experiments.common.experiment import Analysis, Experiment
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.experiments.lookup import asked_experiments, partitioned
from contextcliff_dagster.experiments.sql_tables import result_tables
from contextcliff_dagster.sampling.manifest import HEAD, bins_of
from contextcliff_dagster.store import Store, slug
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.reporting.report_files import ReportFiles


def range_of(bins: Iterable[LengthBin], key: str) -> str:
    """Return the length range of the bin ``key``, for example ``1,024 to 2,047 tokens``."""
    entries = list(bins)
    for number, entry in enumerate(entries):
        if entry.bin == key:
            last = number == len(entries) - 1  # the last one is closed above
            return f"{entry.edge_low:,} to {entry.edge_high - (0 if last else 1):,} tokens"
    return "unknown"


def with_token_ranges(
    assets: Sequence[dg.AssetsDefinition], study: Study, store: Store
) -> list[dg.AssetsDefinition]:
    """Return ``assets``, with the token range of each key added to the assets partitioned by bins.

    The ranges come from the sample that was frozen when the code location was loaded.
    """
    spec_hash, frozen_bins = bins_of(store.manifest_dir(study.name) / HEAD)
    bins = frozen_bins if spec_hash == study.manifest_spec_hash() else []

    def shown(spec: dg.AssetSpec) -> dg.AssetSpec:
        if not bins:
            text = "Token ranges appear once `manifest` exists and the code location is reloaded."
            return spec.replace_attributes(description=f"{spec.description}\n\n{text}")
        ranges = [{"key": b.bin, "tokens": range_of(bins, b.bin)} for b in bins]
        lines = "\n".join(f"- `{row['key']}`: {row['tokens']}" for row in ranges)
        return spec.replace_attributes(
            description=f"{spec.description}\n\n{lines}",
            metadata={**spec.metadata, "token_ranges": table(ranges)},
        )

    by_bins = {
        asset_key(study, name)
        for experiment in asked_experiments(study)
        if experiment.by_bins
        for name in experiment.asset_names("predictions")
    }
    return [asset.map_asset_specs(shown) if asset.keys <= by_bins else asset for asset in assets]


Metadata = dict[str, Any]
_PLOTTED = 150
"""Maximum number of values that the UI plots; each adds about 160 bytes per materialization."""
_SHOWN_FIELDS = 12
"""Maximum number of columns shown for a result; wider tables scroll sideways in the UI."""


_LINEAGE = "dagster/column_lineage"


def result_table(asset: str) -> Table | None:
    """Return the table of `database` that holds the result ``asset``, if one does."""
    return dict(zip(("cliffs", "metrics"), result_tables(), strict=True)).get(asset)


def records_metadata(run: StudyRun, experiment: Experiment, records: pa.Table) -> Metadata:
    """Return counts, mean scores, and failures by tag."""
    (predictions,) = experiment.asset_names("predictions")
    sources = {asset_key(run.study, predictions): experiment.predictions}
    if run.study.has_corpus:
        sources[asset_key(run.study, "manifest")] = MANIFEST_EXAMPLES
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
        _LINEAGE: column_lineage(experiment.records, sources, ("raw_output", "answers")),
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(folder)),
        f"by_{'_and_'.join(by)}": table(summary),
        "failures": table([{"failure": tag, "n": n} for tag, n in tags.most_common()]),
        **{f"failure/{tag}": n for tag, n in sorted(tags.items())},
    }


def result_metadata(
    run: StudyRun, experiment: Experiment, analysis: Analysis
) -> dict[str, Metadata]:
    """Return asset -> metadata for the assets of the result, in order."""
    if experiment.name == "length_profile":
        (records,) = experiment.asset_names("records")
        sources = {asset_key(run.study, records): experiment.records}
        cliffs, metrics = (
            {_LINEAGE: column_lineage(made, sources, ("length_tokens", "score"))}
            for made in result_tables()
        )
        rounds = _rounds_metadata(analysis.extra["rounds"])
        return {
            "metrics": _metrics_metadata(run, analysis.results) | metrics,
            "cliffs": _cliffs_metadata(run, analysis.results) | rounds | cliffs,
        }
    path = run.store.results_file(run.study.name, run.campaign, experiment.name)
    rows = [dict(experiment.overview(result)) or _scalars(result) for result in analysis.results]
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
    """Return verdicts to show in place, a picture and text behind a click, and the pages' paths."""
    shown: Metadata = {
        "report": long_text(files.md.read_text(encoding="utf-8"), files.md),
        "campaign": run.campaign,
        "path": dg.MetadataValue.path(str(files.md.parent)),
    }
    for file in (files.html, files.html.with_name("regression.html")):
        if file.is_file():
            shown[file.name] = page(file, run.store)
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
        "picture": picture(files.png, run.store),
        **shown,
    }


def _plotted(numbers: Iterable[tuple[str, Any]]) -> Metadata:
    return dict(islice(numbers, _PLOTTED))


def _headlines(experiment: Experiment, results: Sequence[Any]) -> list[str]:
    """Return one line of Markdown for each result that has a headline."""
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
    """Return verdict and cap per model, with numbers under separate keys for plots in the UI."""
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
    """Return each model's next round of calls and its reason; empty for a study without rounds."""
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
