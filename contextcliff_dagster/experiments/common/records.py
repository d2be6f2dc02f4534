"""Scored records of a campaign: scoring, writing by model and cell, reading, and checks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    UNSCORED_TAGS,
    Example,
    StoreError,
    Table,
    conform,
    validate,
)
from contextcliff_dagster.experiments.common.measurement import (
    EVERYTHING,
    ledger_rows,
    recipe_of,
    sources_of,
)
from contextcliff_dagster.experiments.common.outcomes import CheckOutcome, CheckSpec
from contextcliff_dagster.experiments.common.study_run import StudyRun, table_files
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.scoring.evaluate import COLUMNS as TRUNCATION_COLUMNS
from contextcliff_dagster.scoring.evaluate import ScoringRules, refusal, score_rows, truncations
from contextcliff_dagster.store import (
    MADE_FROM,
    FileStamp,
    Store,
    atomic_path,
    file_stamp,
    read_table,
    write_table,
)
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.experiments.common.experiment import Experiment, Rows, Source

FEWEST_FILES = 20
"""Minimum number of files worth a combined copy; fewer are as fast to read one by one."""
_INDEX = b"contextcliff.partitions"


def read_record_table(table: Table, study: Study, store: Store, campaign: str) -> pa.Table:
    """Return all records of a campaign; raise like `Experiment.read_record_table`."""
    import pyarrow as pa

    files = table_files(store, table, study.name, campaign)
    if not files:
        raise StoreError(
            f"Study {study.name!r} has no {table.name.replace('_', ' ')} in campaign {campaign} "
            f"yet; run `contextcliff report {study.name}`."
        )
    copy = RecordsAtOnce(store, table, study.name, campaign)
    return pa.concat_tables(copy.read(file) for file in files)


class RecordsAtOnce:
    """The records of one campaign, read from a combined copy or from their files.

    Opening a Parquet file takes milliseconds, and a campaign of 50 models and 20 bins has 1,000.
    The copy identifies each file by its stamp (time, size, inode); a file written since is opened.
    The copy can be deleted at any time. ``read_alone``: number of files opened.
    """

    def __init__(self, store: Store, table: Table, study: str, campaign: str) -> None:
        self._table, self._path = table, store.campaign_copy(table.name, study, campaign)
        self._index: Mapping[str, tuple[FileStamp, int, int, str | None]] = {}
        self._copy: pa.Table | None = None
        self.read_alone = 0
        self._load()

    def read(self, path: Path) -> pa.Table:
        """Return the records in ``path``, one of the campaign's files.

        Raises:
            StoreError: the file is missing or damaged.
        """
        _, at, rows, _ = self._index.get(self._name(path), (None, 0, 0, None))
        if self._copy is not None and self._has(path):
            return self._copy.slice(at, rows)
        self.read_alone += 1
        return read_table(path, self._table)

    def made_from(self, path: Path) -> str | None:
        """Return the sources of ``path`` noted by `store.write_table`; None if unknown."""
        return self._index[self._name(path)][3] if self._has(path) else _noted(path)

    def keep(self, files: Sequence[Path]) -> None:
        """Rewrite the copy unless it already holds exactly these ``files``, unchanged.

        Raises:
            StoreError: a file is damaged, or the copy cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(map(self._name, files))
        if len(files) < FEWEST_FILES:
            self._path.unlink(missing_ok=True)
            return
        if names == list(self._index) and all(map(self._has, files)):
            return
        index, tables, at = {}, [], 0
        for name, path in zip(names, files, strict=True):
            # Stamp first, so that rows written later do not count as read.
            stamp, made_from, records = file_stamp(path), self.made_from(path), self.read(path)
            index[name] = (stamp, at, records.num_rows, made_from)
            tables.append(records)
            at += records.num_rows
        whole = pa.concat_tables(tables)
        noted = {**(whole.schema.metadata or {}), _INDEX: json.dumps(index)}
        with atomic_path(self._path) as temporary:
            pq.write_table(whole.replace_schema_metadata(noted), temporary, compression="zstd")

    def _load(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self._path) as file:
                noted = json.loads((file.schema_arrow.metadata or {})[_INDEX])
                index = {
                    name: (tuple(stamp), at, rows, made_from)
                    for name, (stamp, at, rows, made_from) in noted.items()
                }
                copy = validate(file.read(), self._table, str(self._path))
        except (OSError, pa.ArrowException, LookupError, ValueError, TypeError, StoreError):
            return  # missing, damaged, or of another version
        if sum(rows for _, _, rows, _ in index.values()) == copy.num_rows:
            self._index, self._copy = index, copy

    def _has(self, path: Path) -> bool:
        known = self._index.get(self._name(path))
        return known is not None and known[0] == file_stamp(path)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._path.parent))


def read_records(study: Study, store: Store, campaign: str) -> pd.DataFrame:
    """Return the evaluation records of a campaign; raise like `read_record_table`.

    Scores by an earlier version of the scorers are recomputed but not written, so that two
    campaigns are compared by the same rule.
    """
    table = read_record_table(EVAL_RECORDS, study, store, campaign)
    if set(table["scorer_version"].unique().to_pylist()) != {SCORER_VERSION}:
        table = _scored_again(table, study, store)
    records: pd.DataFrame = table.to_pandas()
    return records


def _scored_again(table: pa.Table, study: Study, store: Store) -> pa.Table:
    """Return the records with older ones rescored, except those whose output was pruned or whose
    example is no longer in the sample."""
    from contextcliff_dagster.experiments.common.preparation import find_frozen

    if (manifest := find_frozen(study, store)) is None:
        return table
    planned = [s.example for b in study.bin_keys for s in manifest.planned(b, EVERYTHING)]
    by_id = {example.example_id: example for example in planned}
    rows = table.to_pylist()
    older = [
        index
        for index, row in enumerate(rows)
        if row["scorer_version"] != SCORER_VERSION
        and row["failure"] not in UNSCORED_TAGS
        and row["raw_output"] is not None
        and row["example_id"] in by_id
    ]
    answers = [rows[index] for index in older]
    rules = scoring_rules(study, study.recipe())
    for index, row in zip(
        older, score_rows(answers, by_id, manifest.document_text, rules), strict=True
    ):
        rows[index] = row
    return conform(rows, EVAL_RECORDS)


def record_rows(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows with None for unknown values, for which pandas has NaN in number columns."""
    valid = records.astype(object).where(records.notna(), None)
    return [dict(zip(valid.columns, row, strict=True)) for row in valid.itertuples(index=False)]


def _noted(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        noted = (pq.read_metadata(path).metadata or {}).get(MADE_FROM)
    except (pa.ArrowException, OSError):
        return None  # made again
    return None if noted is None else str(noted, "utf-8")


def score_by_answers(experiment: Experiment, run: StudyRun, source: Source, rows: Rows) -> Rows:
    """Score prediction rows against the accepted answers; return `EVAL_RECORDS`.

    Raises:
        StudyError: the study's scorer is unknown.
    """
    scored = score_rows(
        rows,
        examples_of(source, experiment.cells(run.study)),
        source.samples.document_text,
        scoring_rules(run.study, recipe_of(experiment, source, run.study)),
    )
    return [{**record, **source.columns} for record in scored]


def scoring_rules(study: Study, recipe: Recipe) -> ScoringRules:
    """Return the scoring rules of ``study`` for answers to requests by ``recipe``."""
    return ScoringRules(
        study.scoring.primary,
        study.scoring.scorer,
        recipe.output_schema,
        recipe.max_output_tokens,
        recipe.answer_prefix or "",
        study.scoring.labels or (),
        study.scoring.thought_tags or (),
    )


def examples_of(source: Source, cells: tuple[str, ...]) -> dict[str, Example]:
    return {
        sample.example.example_id: sample.example
        for cell in cells
        for sample in source.samples.planned(cell, EVERYTHING)
    }


def score_campaign(run: StudyRun, experiment: Experiment) -> None:
    """Score all answers of the campaign in the ledger and write the records.

    Includes sources that the study no longer asks. Records whose outputs were pruned keep their
    scores.

    Raises:
        StoreError: a table cannot be written.
    """
    study, store = run.study, run.store
    sources = sources_of(run, experiment, known=True)
    cells = experiment.cells(study)
    for model in run.identified_models():
        by_cell: dict[str, list[dict[str, Any]]] = {}
        try:
            for source in sources:
                rows = ledger_rows(run, experiment, source, model, cells)
                for record in experiment.score(run, source, rows) if rows else ():
                    by_cell.setdefault(record["bin"], []).append(record)
        except StoreError:  # pruned
            continue
        for cell in cells:
            name = experiment.records.name
            file = store.table_file(name, study.name, run.campaign, model, cell)
            if cell in by_cell:
                write_table(file, by_cell[cell], experiment.records)
            else:
                file.unlink(missing_ok=True)


MISSING_SHARE_LIMIT = 0.05
"""Largest tolerated fraction of unanswered calls; more could move a mean beyond its interval."""

_SCORES = ("score", "em", "f1", "contained")
_COLUMNS = list(dict.fromkeys(("model", "failure", *_SCORES, *TRUNCATION_COLUMNS)))

RECORD_CHECKS = (
    CheckSpec("missing_share", "Nearly every planned call has an answer."),
    CheckSpec(
        "no_transport_error_scored",
        "Calls without an answer have no score: they count as neither wrong nor right.",
    ),
    CheckSpec(
        "no_silent_truncation",
        "No server truncated prompts silently; otherwise the records support no conclusion.",
        blocking=True,
    ),
)


def check_records(study: Study, records: pa.Table) -> list[CheckOutcome]:
    """Return the outcomes of `RECORD_CHECKS`, for records with the columns of EVAL_RECORDS."""
    rows: list[dict[str, Any]] = records.select(_COLUMNS).to_pylist()
    unscored = {tag.value for tag in UNSCORED_TAGS}
    missing = [row for row in rows if row["failure"] in unscored]
    # A document beyond the window is a limit of the model, reported elsewhere, not a failure.
    lost = [row for row in missing if row["failure"] != "context_overflow"]
    share = len(lost) / len(rows)
    wrong = [row for row in missing if any(row[name] is not None for name in _SCORES)]
    return [
        CheckOutcome(
            "missing_share",
            share <= MISSING_SHARE_LIMIT,
            f"{len(lost)} of {len(rows)} calls have no answer "
            f"({share:.1%}; limit {MISSING_SHARE_LIMIT:.0%})",
            values={"missing": len(lost), "overflow": len(missing) - len(lost), "share": share},
        ),
        CheckOutcome(
            "no_transport_error_scored",
            not wrong,
            f"{len(wrong)} of {len(missing)} calls without an answer carry a score",
            error=True,
            values={"scored": len(wrong)},
        ),
        _check_truncation(study, rows),
    ]


def _check_truncation(study: Study, rows: Sequence[Mapping[str, Any]]) -> CheckOutcome:
    every = truncations(rows)
    # Models no longer in the study are left out: removing a model is a way to continue.
    cut = [model for model in every if model.too_many and model.model in study.models]
    why = " ".join(refusal(model, study.name) for model in cut)
    return CheckOutcome(
        "no_silent_truncation",
        not cut,
        why or "every prompt was read whole, as far as the servers report",
        error=True,
        rows={
            "by_model": [
                {
                    "model": model.model,
                    "calls": model.calls,
                    "cut": model.marked + model.at_ceiling,
                    "share": model.share,
                    "all prompts counted as (tokens)": model.ceiling_tokens,
                    "no usage reported": model.without_usage,
                    "no count of our own": model.without_own_count,
                }
                for model in every
            ]
        },
    )
