"""The tables that the experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table

VISIBILITY_PREDICTIONS = Table(
    "visibility_predictions",
    "One row per step of a run: what the model replied; no judgement yet.",
    PREDICTIONS.columns,
)

VISIBILITY_RECORDS = Table(
    "visibility_records",
    "These steps with the configuration that was trained and its scores. `score` is 1 less the "
    "regret of what the run would report after the step; em, f1 and contained are null. "
    "Configurations are JSON objects.",
    (
        *EVAL_RECORDS.columns,
        Column("run", "string", "Run: benchmark, seed and axes", nullable=False),
        Column("benchmark", "string", "Task that is tuned", nullable=False),
        Column("seed", "int64", "Of split, model, start and draws", nullable=False),
        Column("axis_task", "string", "hidden, placebo or shown", nullable=False),
        Column("axis_metric", "string", "hidden, placebo or shown", nullable=False),
        Column("axis_resources", "string", "hidden or shown", nullable=False),
        Column("axis_bounds", "string", "hidden or shown", nullable=False),
        Column("axis_direction", "string", "hidden or shown", nullable=False),
        Column("axis_history", "int64", "Earlier steps that are listed", "steps", nullable=False),
        Column("axis_base", "string", "last or best", nullable=False),
        Column("axis_start", "string", "default, low, neutral or high", nullable=False),
        Column("step", "int64", "Number of the step, from 1", nullable=False),
        Column("steps", "int64", "Steps that the run has when it is whole", nullable=False),
        Column("chosen_by", "string", "model, or fallback: the reply set nothing", nullable=False),
        Column("unparsable", "bool", "A reply came, and no object could be read in it"),
        Column("proposed", "json", "The reply as parsed"),
        Column("events", "json", "What was changed in the proposal, a list", nullable=False),
        Column("base_config", "json", "Configuration the proposal was put on", nullable=False),
        Column("config", "json", "Configuration that was trained", nullable=False),
        Column("validation", "float64", "Its score on the rows that a search sees"),
        Column("test", "float64", "Its score on the rows that are only reported"),
        Column("reported", "float64", "Test score of the best by validation so far"),
        Column("regret", "float64", "Normalised regret of that", "share 0..1"),
        Column("start_config", "json", "Configuration that the run began with", nullable=False),
        Column("start_validation", "float64", "Validation score of the start"),
        Column("start_test", "float64", "Test score of the start"),
        Column("start_regret", "float64", "Normalised regret of the start", "share 0..1"),
    ),
)
