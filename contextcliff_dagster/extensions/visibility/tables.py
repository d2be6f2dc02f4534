"""Tables that the visibility experiment fills."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Column, Table

VISIBILITY_PREDICTIONS = Table(
    "visibility_predictions",
    "One row per step of a run, with the model's reply but no score yet.",
    PREDICTIONS.columns,
)

VISIBILITY_RECORDS = Table(
    "visibility_records",
    "These steps with the trained configuration and its scores. `score` is 1 minus the regret "
    "of the configuration that the run would report after the step; em, f1 and contained are null. "
    "Configurations are JSON objects.",
    (
        *EVAL_RECORDS.columns,
        Column("run", "string", "Run: benchmark, seed and axes", nullable=False),
        Column("benchmark", "string", "Tuned task", nullable=False),
        Column("seed", "int64", "Seed of split, model, start and draws", nullable=False),
        Column("axis_task", "string", "hidden, placebo or shown", nullable=False),
        Column("axis_metric", "string", "hidden, placebo or shown", nullable=False),
        Column("axis_resources", "string", "hidden or shown", nullable=False),
        Column("axis_bounds", "string", "hidden or shown", nullable=False),
        Column("axis_direction", "string", "hidden or shown", nullable=False),
        Column("axis_history", "int64", "Number of earlier steps listed", "steps", nullable=False),
        Column("axis_base", "string", "last or best", nullable=False),
        Column("axis_start", "string", "default, low, neutral or high", nullable=False),
        Column("step", "int64", "Number of the step, from 1", nullable=False),
        Column("steps", "int64", "Planned steps of the run", nullable=False),
        Column("chosen_by", "string", "model, or fallback: the reply set nothing", nullable=False),
        Column("unparsable", "bool", "Whether a reply held no readable object"),
        Column("proposed", "json", "The reply as parsed"),
        Column("events", "json", "List of changes to the proposal", nullable=False),
        Column("base_config", "json", "Configuration that the proposal changed", nullable=False),
        Column("config", "json", "Trained configuration", nullable=False),
        Column("validation", "float64", "Validation score, which the search sees"),
        Column("test", "float64", "Test score, which is only reported"),
        Column("reported", "float64", "Test score of the best validated so far"),
        Column("regret", "float64", "Normalised regret of `reported`", "share 0..1"),
        Column("start_config", "json", "Configuration at the start", nullable=False),
        Column("start_validation", "float64", "Validation score of the start"),
        Column("start_test", "float64", "Test score of the start"),
        Column("start_regret", "float64", "Normalised regret of the start", "share 0..1"),
    ),
)
