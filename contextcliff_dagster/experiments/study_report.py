"""The report on all experiments of a study, and the scores they give its calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.results import JUDGED
from contextcliff_dagster.contracts import EVAL_RECORDS, StudyError
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import sources_of
from contextcliff_dagster.experiments.common.records import examples_of
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import all_experiments, asked_experiments, partitioned
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.sampling.manifest import load_named_examples
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import find_study

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section

_OF_EXAMPLE = ("accepted", "task", "document", "length_tokens", "bin", "evidence_position")
_OF_RECORD = tuple(name for name in JUDGED if name not in _OF_EXAMPLE)


class JudgedCalls:
    """The columns `JUDGED` of a study's calls, as far as its sample and records have them.

    Raises:
        StoreError: the manifest or a table of records is damaged.
    """

    def __init__(self, store: Store, ledger: Ledger, study: str) -> None:
        self._examples = _examples(store, study) | _made_examples(store, ledger, study)
        records = _records(store, study)
        self._keys, self._records = records["call_key"].combine_chunks(), records

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Fill in the columns `JUDGED` of exported rows; null if unknown."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = pa.array([row["call_key"] for row in rows], pa.string())
        judged = self._records.take(pc.index_in(keys, value_set=self._keys)).to_pylist()
        unknown = dict.fromkeys(_OF_EXAMPLE)
        for row, record in zip(rows, judged, strict=True):
            row |= self._examples.get(row["example_id"], unknown)
            row |= {name: record[name] for name in _OF_RECORD}
            if row["failure"] is None and row["no_answer"] is not None:
                row["failure"] = row["no_answer"]


def _examples(store: Store, study: str) -> dict[str, dict[str, Any]]:
    folder = store.manifest_dir(study)
    if not (folder / "manifest.json").exists():
        return {}
    table = load_named_examples(folder).rename_columns({"answers": "accepted"})
    return {
        row.pop("example_id"): row for row in table.select(["example_id", *_OF_EXAMPLE]).to_pylist()
    }


def _made_examples(store: Store, ledger: Ledger, study: str) -> dict[str, dict[str, Any]]:
    """Return the examples of experiments that generate documents; empty for an unknown study."""
    generated: dict[str, dict[str, Any]] = {}
    with suppress(StudyError):
        run = StudyRun(find_study(study), store, ledger, "")
        for experiment in asked_experiments(run.study):
            if not experiment.makes_documents:
                continue
            for source in sources_of(run, experiment, known=True):
                for name, example in examples_of(source, experiment.cells(run.study)).items():
                    values = {"accepted": list(example.answers), "task": example.task}
                    generated[name] = {**dict.fromkeys(_OF_EXAMPLE), **values}
    return generated


def _records(store: Store, study: str) -> pa.Table:
    import pyarrow as pa

    names = ["call_key", *_OF_RECORD]
    schema = pa.schema([EVAL_RECORDS.arrow_schema().field(name) for name in names])
    parts = [schema.empty_table()]
    for table in {e.records.name: e.records for e in all_experiments()}.values():
        if not set(names) <= set(table.column_names):
            continue  # records of another kind
        for file in sorted((store.study_dir(study) / table.name).glob("*/model=*/bin=*/*.parquet")):
            parts.append(read_table(file, table, names).select(names).cast(schema))
    return pa.concat_tables(parts)


_warn = logging.getLogger(__name__).warning


def study_sections(run: StudyRun, owner: Experiment | None = None) -> list[Section]:
    """Return the sections of the study's experiments that the page of ``owner`` lacks.

    Raises:
        StoreError: an experiment has no result yet, or a damaged one.
    """
    return [
        section
        for experiment in partitioned(run.study)
        if experiment is not owner
        for section in experiment.sections(run, experiment.read_results(run))
    ]


def write_study_report(run: StudyRun, warn: Callable[[str], None] = _warn) -> ReportFiles:
    """Write the campaign's report; ``latest`` names the newest begun campaign that has one.

    Then log it to the study's tracker (`track`); failures there go to ``warn`` and are not raised.

    Raises:
        StoreError: an experiment has no result yet, or the report cannot be written.
    """
    from contextcliff_dagster.reporting.report_files import point_latest, write_sections

    folder = run.store.report_dir(run.study.name, run.campaign)
    owner = next((e for e in asked_experiments(run.study) if e.has_page(run.study)), None)
    sections = study_sections(run, owner)
    if owner is not None:
        files = owner.write_report(run, sections)
    else:
        files = write_sections(sections, folder, title=run.study.description or run.study.name)
    campaigns = [one.name for one in list_campaigns(run.ledger, run.study.name)]
    newer = campaigns[campaigns.index(run.campaign) + 1 :] if run.campaign in campaigns else []
    reported = (run.store.report_dir(run.study.name, name) / files.json.name for name in newer)
    if not any(file.is_file() for file in reported):
        point_latest(folder)
    if run.study.track is not None and run.study.has_corpus:
        from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
        from contextcliff_dagster.experiments.tracking.tracker import track_report

        track_report(run, read_cliffs(run.study, run.store, run.campaign), files, warn)
    return files
