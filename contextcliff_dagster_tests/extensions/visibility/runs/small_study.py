"""A study of the experiment on landscapes that are tabulated in a second, and scripted replies."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextcliff_dagster.experiments.common import measurement
from contextcliff_dagster.experiments.common.experiment import Rows
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.visibility import kept_landscapes
from contextcliff_dagster.extensions.visibility.experiment import VISIBILITY
from contextcliff_dagster.inference.engines.base import Delta
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.telemetry import RunSummary
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

SMALL = """\
name: small
models: [reference-short]
visibility:
  benchmarks: [toy]
  task: [hidden, shown]
  metric: [hidden]
  bounds: [hidden]
  history: [0, 2]
  seeds: 2
  steps: 4
"""


def small_landscapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 configurations on 4 splits instead of 128 on 20."""
    monkeypatch.setattr(kept_landscapes, "POINTS", 16)
    monkeypatch.setattr(kept_landscapes, "SPLITS", 4)


def small_study(folder: Path, text: str = SMALL) -> Study:
    """The study, read from a file as a user's is."""
    file = folder / "small.yaml"
    file.write_text(text, encoding="utf-8")
    return load_study(file)


def drawn_reply(prompt: Prompt) -> Sequence[Delta]:
    """A reply that the prompt alone decides: a configuration, words, an impossible one."""
    rng = random.Random(prompt.hash)
    value = {"C": round(10 ** rng.uniform(-2, 2), 4), "max_iter": rng.randint(10, 1000)}
    replies = [json.dumps(value)] * 5 + ["no idea", '{"C": "abc"}', '{"C": 1e9}']
    return [Delta(text=rng.choice(replies))]


@contextmanager
def opened(study: Study, campaign: str | None = None) -> Iterator[StudyRun]:
    """The study in the store of this test."""
    with StudyRun.open(study, Store.default(), campaign) as run:
        yield run


def plans(run: StudyRun) -> list[CallPlan]:
    """What is asked, as `measurement.measure_cells` asks it."""
    cells = VISIBILITY.cells(run.study)
    return [
        measurement._call_plan(run, VISIBILITY, source, cells, 1)
        for source in measurement.sources_of(run, VISIBILITY)
    ]


def ask(run: StudyRun, engine: ScriptedEngine, calls: int | None = None) -> RunSummary:
    """Ask what is missing, at most so many calls.

    Raises:
        BudgetError: there is more to ask.
    """
    (plan,) = plans(run)
    control = RunControl(budget=Budget(calls=calls)) if calls else None
    once = get_model("reference-short").model_copy(update={"max_attempts": 1})
    return measure(plan, once, run.ledger, control, engine=engine)


def records(run: StudyRun) -> Rows:
    """The records of all that is answered."""
    (source,) = measurement.sources_of(run, VISIBILITY)
    rows = measurement.ledger_rows(
        run, VISIBILITY, source, "reference-short", VISIBILITY.cells(run.study)
    )
    return VISIBILITY.score(run, source, rows)
