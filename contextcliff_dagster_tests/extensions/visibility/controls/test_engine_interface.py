"""Scripted agents behind an engine: prompts, ledger, trainings, records, result as of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.extensions.visibility.analysis.model import analyse_model
from contextcliff_dagster.extensions.visibility.controls import (
    ScriptedAgent,
    ignores_everything,
    uses_what_it_sees,
)
from contextcliff_dagster.extensions.visibility.results import VisibilityResult
from contextcliff_dagster.extensions.visibility.section import section_of
from contextcliff_dagster.inference.engines.base import Delta
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster_tests.extensions.visibility.runs.small_study import (
    ask,
    opened,
    records,
    small_landscapes,
    small_study,
)
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

GRID = """\
name: controls-{first}
models: [reference-short]
visibility:
  benchmarks: [toy]
  task: [hidden]
  metric: [hidden]
  bounds: [hidden, shown]
  direction: [hidden, shown]
  history: [0, 10]
  seeds: 6
  first_seed: {first}
  steps: 10
"""


def _measured(agent: ScriptedAgent, folder: Path, grid: int) -> VisibilityResult:
    def answer(prompt: Prompt) -> Sequence[Delta]:
        rng = np.random.default_rng(int(prompt.hash[:16], 16))
        return [Delta(text=agent(prompt.contents()[-1], rng))]

    study = small_study(folder, GRID.format(first=6 * grid))
    with opened(study) as run:
        engine = ScriptedEngine(answer)
        ask(run, engine)
        # The first prompts with and without a history are equal, and equal prompts asked once.
        assert 400 < len(engine.asked) <= 480 - 24
        return analyse_model(pd.DataFrame(records(run)), section_of(study))


def _regret(result: VisibilityResult) -> dict[str, str]:
    return {one.axis: one.verdict for one in result.effects if one.outcome == "regret"}


def test_three_grids_of_each_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow: six grids of 480 calls and as many trainings."""
    small_landscapes(monkeypatch)
    using = [_measured(uses_what_it_sees, tmp_path, grid) for grid in range(3)]
    assert [_regret(one)["bounds"] for one in using] == ["better"] * 3
    assert all("worse" not in _regret(one).values() for one in using)
    ignoring = [_measured(ignores_everything, tmp_path, grid) for grid in range(3, 6)]
    for one in ignoring:
        assert one.n_runs == 48
        assert not {"better", "worse"} & set(_regret(one).values())
