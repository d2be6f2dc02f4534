"""A campaign's answers, each with its question, accepted answers and score."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from contextcliff_dagster.contracts import ANSWERS, EVAL_RECORDS, PREDICTIONS, Table
from contextcliff_dagster.experiments.common.experiment import Experiment
from contextcliff_dagster.experiments.common.measurement import sources_of
from contextcliff_dagster.experiments.common.records import examples_of
from contextcliff_dagster.experiments.common.study_run import StudyRun, in_order
from contextcliff_dagster.store import read_table, slug

_READ = {"call_key", "no_answer", "raw_output", *ANSWERS.column_names}
_ORDER = ("length_tokens", "example_id", "control", "_rank", "replicate")


def read_answers(
    run: StudyRun,
    models: Collection[str] | None = None,
    bins: Collection[str] | None = None,
    experiment: Experiment | None = None,
) -> pa.Table:
    """Return the `ANSWERS` of a campaign, sorted by bin and length, with the models' answers to a
    question in adjacent rows.

    Answered calls that are not scored yet are included, without a score. Questions and accepted
    answers are null if the sample is gone; pruned answers are null. ``models``, ``bins``: only
    these. ``experiment``: None means the length profile.

    Raises:
        StoreError: a table or the manifest is damaged.
    """
    empty = ANSWERS.arrow_schema().empty_table()
    return pa.concat_tables([empty, *iter_answers(run, models, bins, experiment)])


def iter_answers(
    run: StudyRun,
    models: Collection[str] | None = None,
    bins: Collection[str] | None = None,
    experiment: Experiment | None = None,
) -> Iterator[pa.Table]:
    """Yield `read_answers` one cell at a time, to limit memory use."""
    there = answered_cells(run, experiment)
    asked = [m for m in there if models is None or m in models]
    cells = sorted({cell for model in asked for cell in there[model]})
    known = _Examples(run, experiment)
    for cell in cells:
        if bins is None or cell in bins:
            tables = [_answers(run, m, cell, experiment) for m in asked if cell in there[m]]
            yield known.joined(tables, asked)


def answered_cells(run: StudyRun, experiment: Experiment | None = None) -> dict[str, list[str]]:
    """Return model -> cells with predictions or records in the campaign; the study's models come
    first."""
    names = {slug(m): m for m in (*run.study.models, *run.identified_models())}
    cells: dict[str, set[str]] = {}
    for table in _tables(experiment):
        folder = run.store.campaign_dir(table.name, run.study.name, run.campaign)
        for file in folder.glob("model=*/bin=*/*.parquet"):
            model = file.parent.parent.name.removeprefix("model=")
            cell = file.parent.name.removeprefix("bin=")
            cells.setdefault(names.get(model, model), set()).add(cell)
    return {model: sorted(cells[model]) for model in in_order(run.study, cells)}


def _tables(experiment: Experiment | None) -> list[Table]:
    if experiment is None:
        return [EVAL_RECORDS, PREDICTIONS]
    # A guest's predictions use other texts than its host's examples.
    return [experiment.records, *([] if experiment.host else [experiment.predictions])]


def _answers(run: StudyRun, model: str, cell: str, experiment: Experiment | None) -> pa.Table:
    """Return the records of one cell, then its unscored predictions."""
    parts: list[pa.Table] = []
    for table in _tables(experiment):
        path = run.store.table_file(table.name, run.study.name, run.campaign, model, cell)
        if not path.exists():
            continue
        if parts:
            keys = read_table(path, table, ["call_key"])["call_key"]
            unscored = pc.invert(pc.is_in(keys, value_set=parts[0]["call_key"].combine_chunks()))
            if not pc.any(unscored).as_py():
                continue
            rows = read_table(path, table, _READ).filter(unscored)
        else:
            rows = read_table(path, table, _READ)
        if "no_answer" in rows.column_names:
            rows = rows.rename_columns({"no_answer": "failure"})
        parts.append(rows.rename_columns({"raw_output": "answer"}))
    return pa.concat_tables(parts, promote_options="default")


class _Examples:
    """Questions and accepted answers by example id."""

    def __init__(self, run: StudyRun, experiment: Experiment | None) -> None:
        self._schema = ANSWERS.arrow_schema()
        ids: pa.Array
        if experiment is not None and experiment.makes_documents:
            made = {
                name: example
                for source in sources_of(run, experiment, known=True)
                for name, example in examples_of(source, experiment.cells(run.study)).items()
            }
            ids = pa.array(list(made), pa.string())
            columns = {
                "question": pa.array([e.question for e in made.values()], pa.string()),
                "accepted": pa.array(
                    [list(e.answers) for e in made.values()], pa.list_(pa.string())
                ),
            }
        else:
            sample = _sample(run)
            ids = sample["example_id"].combine_chunks()
            columns = {
                "question": sample["question"].combine_chunks(),
                "accepted": sample["answers"].combine_chunks(),
                "document": sample["document"].combine_chunks(),
            }
        self._ids, self._columns = ids, columns

    def joined(self, tables: list[pa.Table], models: list[str]) -> pa.Table:
        """Return the rows of one cell in the columns of `ANSWERS`, in order."""
        rows = pa.concat_tables(tables, promote_options="default")
        place = pc.index_in(rows["example_id"].combine_chunks(), value_set=self._ids)
        for name, values in self._columns.items():
            rows = rows.append_column(name, values.take(place))
        rank = pc.index_in(rows["model"], value_set=pa.array(models, pa.string()))
        for column in self._schema:
            if column.name not in rows.column_names:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        rows = rows.append_column("_rank", rank).sort_by([(key, "ascending") for key in _ORDER])
        return rows.select(self._schema.names).cast(self._schema)


def _sample(run: StudyRun) -> pa.Table:
    """Return the examples of the study's manifest, even if outdated; empty if it is gone."""
    from contextcliff_dagster.contracts import MANIFEST_EXAMPLES
    from contextcliff_dagster.sampling.manifest import load_named_examples

    folder = run.store.manifest_dir(run.study.name)
    if not (folder / "manifest.json").exists():
        empty = MANIFEST_EXAMPLES.arrow_schema().empty_table()
        return empty.append_column("document", pa.nulls(0, pa.string()))
    return load_named_examples(folder)
