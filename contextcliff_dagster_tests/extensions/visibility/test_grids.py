"""Runs without a landscape, and grids: their plan, their seeds, and the names of runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from contextcliff_dagster.extensions.visibility import kept_landscapes
from contextcliff_dagster.extensions.visibility.commands import GRIDS, made_study
from contextcliff_dagster.extensions.visibility.runs import tuning
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import known_study
from contextcliff_dagster_tests.extensions.visibility.measured_store import (
    keep_landscape,
    models_file,
)
from contextcliff_dagster_tests.support.servers.on_a_thread import on_a_thread
from contextcliff_dagster_tests.support.servers.tuning_server import KEY, TuningServer, drawn
from contextcliff_dagster_tests.support.terminal import Ended, assert_one_sentence, call

RUN = ("visibility", "run", "--model", "tuner")
GRID = ("visibility", "grid", "--model", "tuner", "--seeds", "2", "--num-steps", "2")
ONE_AXIS = ("--levels", "metric=hidden", "--levels", "resources=hidden", "--levels", "history=0")


@pytest.fixture
def server() -> TuningServer:
    return TuningServer()


@pytest.fixture(autouse=True)
def here(server: TuningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder, and the model `tuner`; there is no landscape."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TUNER_KEY", KEY)
    with on_a_thread(server.handle) as url:
        monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models_file(tmp_path, url)))
        yield folder


def done(*line: str) -> Ended:
    ended = call(*line)
    assert (ended.code, ended.sentences) == (0, []), ended
    return ended


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a landscape was tabulated")


def results_of(study: str, home: Path) -> dict[str, Any]:
    (file,) = home.glob(f"{study}/results/*/visibility.json")
    (result,) = json.loads(file.read_text(encoding="utf-8"))["results"]
    return dict(result)


def test_a_run_calls_its_model_before_any_row_of_a_landscape(
    server: TuningServer, contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_landscapes, "tabulate", refuse)
    trained: list[int] = []

    def reply(prompt: str) -> str:
        trained.append(len(list((contextcliff_home / "_visibility").glob("landscapes/*"))))
        return drawn(prompt)

    server.reply = reply
    out = done(*RUN, "--run-id", "first").out
    assert trained == [0, 0, 0]
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["Best", "Test", "Final"]
    assert "regret" not in out
    assert "Regret is unknown: this benchmark has no landscape" in done("report", "first").out
    result = results_of("first", contextcliff_home)
    assert (result["n_runs"], result["missing"]) == (1, [])
    assert result["cells"][0]["means"]["regret"] is None
    assert (result["curves"], result["searches"]) == ([], [])


def test_a_run_has_its_regret_where_a_landscape_is_kept(
    contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_landscapes, "tabulate", refuse)
    keep_landscape(Store(contextcliff_home))
    done(*RUN, "--run-id", "first")
    assert "The run went from a regret of" in done("report", "first").out
    result = results_of("first", contextcliff_home)
    assert result["cells"][0]["means"]["regret"] is not None
    assert len(result["searches"]) == 4


def test_a_run_without_a_landscape_travels(
    contextcliff_home: Path, here: Path, monkeypatch: pytest.MonkeyPatch, server: TuningServer
) -> None:
    done(*RUN, "--run-id", "mine")
    done("export", "mine", str(here / "mine.zip"))
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(here / "other"))
    done("import", str(here / "mine.zip"), "--adopt")
    assert "Regret is unknown: this benchmark has no landscape" in done("report", "mine").out
    done(*RUN, "--run-id", "mine")
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    "line",
    [("run", "toy-flat"), ("run", "--benchmark", "toy-flat")],
    ids=["argument", "option"],
)
def test_a_run_takes_its_benchmark_either_way(line: tuple[str, ...]) -> None:
    run = json.loads(done("visibility", *line, "--model", "tuner", "--json").out)
    assert run["run_id"].startswith("toy-flat-s000")


def test_a_grid_takes_benchmarks_either_way_and_a_run_one() -> None:
    dry = ("--dry-run", "--json")
    plans = [
        json.loads(done(*GRID, *names, *dry).out)["study"]
        for names in (("toy", "wine"), ("--benchmark", "toy", "--benchmark", "wine"))
    ]
    assert plans[0] == plans[1]
    assert_one_sentence(call(*GRID), "A grid needs a benchmark")
    assert_one_sentence(call(*RUN, "toy", "--benchmark", "wine"), "A run has one --benchmark")


def test_a_named_run_is_named_so_in_its_trace(here: Path) -> None:
    run = json.loads(done(*RUN, "--run-id", "mine", "--json").out)
    assert (run["run_id"], run["trace"]) == ("mine", "traces/toy/mine/mine.jsonl")
    lines = (here / run["trace"]).read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["run_id"] for line in lines} == {"mine"}
    assert done(*RUN, "--run-id", "mine", "--json").out
    assert len(list((here / "traces").rglob("*.jsonl"))) == 1


def test_a_dry_run_names_the_missing_landscape_with_its_cost(contextcliff_home: Path) -> None:
    plan = json.loads(done(*GRID, "toy", "--dry-run", "--json").out)
    (landscape,) = plan["landscapes"]
    assert (landscape["benchmark"], landscape["rows"], landscape["of"]) == ("toy", 2560, 2560)
    assert landscape["cpu_seconds"] > 0
    full = call(*GRID, "toy", "--dry-run")
    assert "Landscape of toy: 2,560 trainings left of 2,560 (coarse: 256), about" in full.err
    assert "Seeds without headroom are skipped once the landscapes exist." in full.out
    coarse = call(*GRID, "toy", "--landscape", "coarse", "--dry-run")
    assert "256 trainings left of 256, about" in coarse.err
    of_grid = [line for line in coarse.out.splitlines() if line.startswith("contextcliff")]
    assert all(" --landscape coarse" in line for line in of_grid)
    run = call(*RUN, "--init", "low", "--landscape", "coarse", "--dry-run")
    assert "Landscape of toy: 256 trainings left of 256" in run.err
    assert "Landscape" not in call(*RUN, "--dry-run").err
    assert not (contextcliff_home / "_visibility").exists()
    keep_landscape(Store(contextcliff_home))
    assert done(*GRID, "toy", "--dry-run").err == ""


def test_a_study_file_names_its_landscape_with_its_cost(
    here: Path, contextcliff_home: Path
) -> None:
    keys = "{benchmarks: [toy], task: hidden, metric: hidden, landscape: coarse, seeds: 1}"
    text = f"name: file\nmodels: [tuner]\nvisibility: {keys}\n"
    (here / "file.yaml").write_text(text, encoding="utf-8")
    ended = call("profile", "./file.yaml", "--dry-run")
    assert "Landscape of toy: 256 trainings left of 256" in ended.err, ended
    assert not (contextcliff_home / "_visibility").exists()


def test_a_dry_run_lists_48_commands_that_share_their_calls_with_the_grid(
    server: TuningServer, contextcliff_home: Path
) -> None:
    keep_landscape(Store(contextcliff_home))
    whole = ("visibility", "grid", "toy", "--model", "tuner", "--num-steps", "1")
    listed = done(*whole, "--dry-run").out.split("\n\n")[0].splitlines()
    assert len(set(listed)) == len(listed) == 48
    assert json.loads(done(*whole, "--dry-run", "--json").out)["commands"] == listed
    done(*whole)
    calls = len(server.bodies)
    for line in (listed[0], listed[30], listed[47]):
        done(*shlex.split(line)[1:])
    assert len(server.bodies) == calls


def test_commands_have_every_level_of_their_run(contextcliff_home: Path) -> None:
    keep_landscape(Store(contextcliff_home))
    levels = ("task=placebo,shown", "base=last,best", "start=low", "direction=shown", "history=3")
    given = [word for level in levels for word in ("--levels", level)]
    more = ("--temperature", "0.5", "--replies", "schema")
    plan = json.loads(done(*GRID, "toy", *given, *more, "--dry-run", "--json").out)
    assert plan["estimate"]["calls"] == 2 * len(plan["commands"])
    for line in plan["commands"]:
        alone = done(*shlex.split(line)[1:], "--dry-run", "--json").out
        assert json.loads(alone)["estimate"]["calls"] == 2
    assert any(" run " in line for line in plan["commands"])
    (first, *_) = (line for line in plan["commands"] if " run " in line)
    for words in ("--init low", "--history-window 3", "--show-direction", "--replies schema"):
        assert words in first


def test_seeds_without_headroom_are_replaced_named_and_kept(
    server: TuningServer, contextcliff_home: Path
) -> None:
    keep_landscape(Store(contextcliff_home), flat=[1, 2])
    plan = json.loads(done(*GRID, "toy", *ONE_AXIS, "--dry-run", "--json").out)
    assert (plan["skipped_seeds"], plan["seeds"]) == ([1, 2], [0, 3])
    skipped = "Skipped seeds: 1, 2; nothing could be gained on their splits. The seeds are 0, 3."
    assert skipped in done(*GRID, "toy", *ONE_AXIS, "--dry-run").out
    report = " ".join(done(*GRID, "toy", *ONE_AXIS).out.split())
    assert "Skipped seeds: 1, 2; nothing could be gained on their splits" in report
    study = known_study(plan["study"])
    assert study is not None
    assert study.sections["visibility"].skipped_seeds == (1, 2)
    calls = len(server.bodies)
    done(*GRID, "toy", *ONE_AXIS)
    assert len(server.bodies) == calls
    assert skipped in done(*GRID, "toy", *ONE_AXIS, "--dry-run").out


def test_a_run_by_itself_keeps_its_seed(contextcliff_home: Path) -> None:
    """Also one that has no option of `run`, and is listed as a grid."""
    keep_landscape(Store(contextcliff_home), flat=[0])
    levels = ("task=placebo", "metric=hidden", "resources=hidden", "history=0", "start=high")
    given = [word for level in levels for word in ("--levels", level)]
    line = ("visibility", "grid", "toy", "--model", "tuner", "--seeds", "1", *given, "--dry-run")
    assert json.loads(done(*line, "--json").out)["seeds"] == [0]


def test_the_cost_is_agreed_before_a_landscape_is_tabulated(
    contextcliff_home: Path, tmp_path: Path, server: TuningServer
) -> None:
    with (tmp_path / "models.yaml").open("a", encoding="utf-8") as file:
        file.write("    price: {input_usd_per_mtok: 900000, output_usd_per_mtok: 900000}\n")
    ended = call(*GRID, "toy", *ONE_AXIS)
    assert_one_sentence(ended, "there is no terminal to confirm it")
    assert not (contextcliff_home / "_visibility").exists()
    assert server.bodies == []


def test_replaced_seeds_stay_when_landscapes_change(
    server: TuningServer, contextcliff_home: Path
) -> None:
    file = keep_landscape(Store(contextcliff_home), flat=[1])
    done(*GRID, "toy", *ONE_AXIS)
    calls = len(server.bodies)
    file.unlink()
    keep_landscape(Store(contextcliff_home), flat=[0])
    plan = json.loads(done(*GRID, "toy", *ONE_AXIS, "--dry-run", "--json").out)
    assert (plan["skipped_seeds"], plan["estimate"]["calls"]) == ([1], 0)
    done(*GRID, "toy", *ONE_AXIS)
    assert len(server.bodies) == calls


def test_a_grid_that_has_begun_keeps_its_seeds(
    server: TuningServer, contextcliff_home: Path
) -> None:
    """As one measured by an earlier version: nothing of it is asked again."""
    file = keep_landscape(Store(contextcliff_home))
    done(*GRID, "toy", *ONE_AXIS)
    calls = len(server.bodies)
    file.unlink()
    keep_landscape(Store(contextcliff_home), flat=[1])
    report = " ".join(done(*GRID, "toy", *ONE_AXIS, "--seeds", "2").out.split())
    assert len(server.bodies) == calls
    assert "Skipped" not in report


def test_where_nothing_can_be_gained_the_report_says_so(
    contextcliff_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_MOST_SKIPPED", 0)
    keep_landscape(Store(contextcliff_home), flat=[1, 2])
    report = " ".join(done(*GRID, "toy", *ONE_AXIS, "--seed", "1").out.split())
    assert "Nothing could be gained on these splits: no configuration of the" in report


def test_new_keys_leave_the_digests_of_studies() -> None:
    plain = {"temperature": 0.0, "replies": "free", "base": "last", "seeds": 3, "steps": 10}
    asked = {**GRIDS["48"], **plain, "first_seed": 0, "benchmarks": ["toy"]}
    given: list[dict[str, Any]] = [
        {},
        {"landscape": "full", "skipped_seeds": ()},
        {"landscape": "coarse"},
        {"skipped_seeds": (1,)},
    ]
    names = [made_study({**asked, **keys}, ["tuner"], "grid").name for keys in given]
    assert names[:2] == ["visibility-toy-c6d3ba"] * 2, "as before these keys"
    assert len({*names}) == 2
