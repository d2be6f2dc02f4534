"""One run for each model of a campaign, whatever the tracker does; it never costs a measurement."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
from contextcliff_dagster.experiments.study_report import write_study_report
from contextcliff_dagster.experiments.tracking import tracker
from contextcliff_dagster.experiments.tracking.tracker import PYTHON, run_contents, tracked_lines
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import Leave
from contextcliff_dagster_tests.support.terminal import call

MODELS = ["reference-short", "reference-long"]
OBEDIENT = """
for model in request["models"]:
    given = {"model": model["model"], "id": model["id"] or "run of " + model["model"]}
    print(json.dumps(given))
    print("what a tracker prints by itself")
    print(json.dumps({**given, "url": "http://tracker/" + model["model"], "complete": True}))
"""


class Fake:
    """A Python that, whatever it is to run, runs ``code`` on the request and keeps that."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._program, self._kept = folder / "python", folder / "requests"
        self._kept.touch()
        monkeypatch.setenv(PYTHON, str(self._program))
        self.does(OBEDIENT)

    def does(self, code: str) -> None:
        self._program.write_text(
            f"#!{sys.executable}\nimport json, sys, time\ntext = sys.stdin.read()\n"
            f"with open({str(self._kept)!r}, 'a') as kept:\n    kept.write(text + chr(10))\n"
            f"request = json.loads(text)\n{code}",
            encoding="utf-8",
        )
        self._program.chmod(0o700)

    def requests(self) -> list[dict[str, Any]]:
        """Those since it was asked last."""
        found = [json.loads(line) for line in self._kept.read_text("utf-8").splitlines()]
        self._kept.write_text("")
        return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


def report(study: Study, store: Store) -> list[str]:
    """Make the report again; what was warned of."""
    warned: list[str] = []
    with StudyRun.open(study, store) as run:
        files = write_study_report(run, warned.append)
    assert files.md.exists()
    return warned


def campaign(study: Study, store: Store) -> str:
    with StudyRun.open(study, store) as run:
        return run.campaign


def test_every_model_has_one_run_with_all_of_its_report(
    measured: Study, store: Store, fake: Fake
) -> None:
    study = measured.changed(track="mlflow")
    assert report(study, store) == []
    (request,) = fake.requests()
    assert [one["model"] for one in request["models"]] == MODELS
    for one in request["models"]:
        assert one["id"] is None
        folder = store.profile_dir(study.name, campaign(study, store), one["model"])
        cliffs = json.loads((folder / "cliffs.json").read_text("utf-8"))
        assert one["metrics"]["safe_cap_tokens"] == cliffs["safe_cap_tokens"]
        assert one["metrics"]["n"] == cliffs["n"]
        assert one["tags"]["contextcliff.verdict"] == cliffs["verdict"]
        assert one["curve"] == [
            [p["tokens"], p["mean"], p["ci_low"], p["ci_high"]] for p in cliffs["curve"]
        ]
        assert one["params"]["tokenizer"] == "reference"
        assert one["params"]["sampling.samples_per_bin"] == "4"
        names = {Path(file).name for file in one["files"]}
        assert names == {"report.md", "report.json", "report.html", "report.png"}


def test_the_same_report_is_logged_once_and_another_goes_into_the_same_run(
    measured: Study, store: Store, fake: Fake
) -> None:
    study = measured.changed(track={"kind": "mlflow", "experiment": "mine"})
    for _ in range(3):
        report(study, store)
    assert len(fake.requests()) == 1
    report(study.changed(description="Another title"), store)
    (request,) = fake.requests()
    assert [one["id"] for one in request["models"]] == [f"run of {model}" for model in MODELS]
    assert not any(one["log_curve"] for one in request["models"])
    report(study.changed(track={"kind": "mlflow", "experiment": "another place"}), store)
    assert [one["id"] for one in fake.requests()[0]["models"]] == [None, None]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit('MlflowException: no server')", "no server"),
        ("time.sleep(600)", "took longer than 1 s"),
        ("sys.exit('<html>' * 10_000)", "<html><"),
        ("print('[1]'); print('{}'); sys.exit(3)", "ended with 3"),
        ("import os; os.kill(os.getpid(), 9)", "ended with -9"),
    ],
    ids=["refused", "hung", "a page", "strange", "killed"],
)
def test_a_tracker_that_fails_costs_a_warning_and_is_tried_again(
    measured: Study, store: Store, fake: Fake, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    study = measured.changed(track="wandb")
    with monkeypatch.context() as patched:
        patched.setattr(tracker, "_LIMIT_S", 1 if "sleep" in code else 240)
        fake.does(code)
        (warning,) = report(study, store)
    assert "not logged to Weights & Biases" in warning
    assert why in warning
    assert len(warning) < 600
    (line,) = tracked_lines(store, study, campaign(study, store))
    assert why in line
    fake.does(OBEDIENT)
    assert report(study, store) == []
    (line,) = tracked_lines(store, study, campaign(study, store))
    assert line == "Weights & Biases: " + ", ".join(f"http://tracker/{model}" for model in MODELS)


def test_nothing_that_a_tracker_has_started_is_left(
    measured: Study, store: Store, fake: Fake
) -> None:
    fake.does(
        "import subprocess as s\n"
        "child = s.Popen(['sleep', '600'], stdout=s.DEVNULL, stderr=s.DEVNULL)\n"
        "print(json.dumps({'model': 'reference-short', 'id': child.pid}), flush=True)"
    )
    assert report(measured.changed(track="wandb"), store) == []
    state = next((store.study_dir(measured.name) / "tracking").glob("*.json"))
    pid = json.loads(state.read_text("utf-8"))["runs"]["reference-short"]["id"]
    status, deadline = Path(f"/proc/{pid}/status"), time.monotonic() + 120
    while status.exists() and "(zombie)" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_was_begun_is_gone_on_with(measured: Study, store: Store, fake: Fake) -> None:
    study = measured.changed(track="mlflow")
    fake.does(
        "print(json.dumps({'model': 'reference-short', 'id': 'begun'}), flush=True)\n"
        "sys.exit('the connection broke')"
    )
    assert len(report(study, store)) == 1
    fake.requests()
    fake.does(OBEDIENT)
    report(study, store)
    (request,) = fake.requests()
    assert [one["id"] for one in request["models"]] == ["begun", None]
    assert [one["log_curve"] for one in request["models"]] == [True, True]


def test_no_python_is_a_warning_too(
    measured: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    (warning,) = report(measured.changed(track="mlflow"), store)
    assert "/nowhere/python cannot be run" in warning


def test_a_damaged_note_and_an_error_of_ours_cost_no_report(
    measured: Study, store: Store, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = measured.changed(track="mlflow")
    note = store.study_dir(study.name) / "tracking" / f"{campaign(study, store)}.json"
    note.parent.mkdir()
    for content in ("", "[]", '{"runs": 7}', "{"):
        note.write_text(content, encoding="utf-8")
        assert report(study, store) == []
    monkeypatch.setattr(tracker, "run_contents", lambda *_: 1 / 0)
    (warning,) = report(study, store)
    assert "division by zero" in warning


def test_secrets_are_in_no_request_note_or_warning(
    measured: Study, store: Store, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e"
    monkeypatch.setenv("MY_API_KEY", "another-secret-value")
    study = measured.changed(track="mlflow", description=f"{secret} another-secret-value")
    fake.does(f"sys.exit('http://me:{secret}@host refused another-secret-value')")
    (warning,) = report(study, store)
    request = json.dumps(fake.requests())
    note = (store.study_dir(study.name) / "tracking").glob("*.json")
    for text in (warning, request, *(path.read_text("utf-8") for path in note)):
        assert secret not in text
        assert "another-secret-value" not in text


def test_of_many_models_each_run_has_its_own_page_and_no_link_to_another(
    measured: Study, store: Store, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextcliff_dagster.reporting.report_files.MANY", 1)
    fake.does(
        'for model in request["models"]:\n'
        '    model["texts"] = {f: open(f, "rb").read().hex() for f in model["files"]}\n'
        "with open(kept.name, 'w') as kept:\n    kept.write(json.dumps(request) + chr(10))\n"
        + OBEDIENT
    )
    assert report(measured.changed(track="mlflow"), store) == []
    (request,) = fake.requests()
    assert [one["model"] for one in request["models"]] == MODELS
    for one in request["models"]:
        assert {Path(file).parent.name for file in one["files"]} == {one["model"]}
        own = Path(one["picture"]).parent
        assert own.parent.name == "models"
        for file, held in one["texts"].items():
            logged, kept = bytes.fromhex(held), (own / Path(file).name).read_bytes()
            above = {".md": b"[All 2 models]", ".html": b">All 2 models</a>"}.get(Path(file).suffix)
            if above is None:
                assert logged == kept
            else:
                assert above in kept
                assert above not in logged
                assert b"../" not in logged
                assert 20 < len(kept) - len(logged) < 70
    assert report(measured.changed(track="mlflow"), store) == []
    assert fake.requests() == []


def test_no_path_of_this_machine_is_logged(measured: Study, store: Store, tmp_path: Path) -> None:
    with StudyRun.open(measured, store) as run:
        files = write_study_report(run)
        result = read_cliffs(measured, store, run.campaign)[0]
    prompt = {**dict(measured.prompt), "template": str(tmp_path / "private" / "template.txt")}
    contents = run_contents(measured.changed(prompt=prompt), result, files)
    assert contents["params"]["prompt.template"] == "template.txt"
    assert str(tmp_path) not in json.dumps({**contents, "files": [], "picture": None})


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "mlflow", "tracking_uri": "https://elsewhere.example"},
        {"kind": "wandb", "entity": "elsewhere.example"},
    ],
)
def test_a_study_of_somebody_else_names_no_address_without_leave(
    measured: Study, store: Store, fake: Fake, tmp_path: Path, given: dict[str, str]
) -> None:
    study = measured.changed(track=given).with_leave(Leave(tmp_path))
    (warning,) = report(study, store)
    assert "sends its results to" in warning
    assert "elsewhere.example" in warning
    assert "--trust-study" in warning
    assert fake.requests() == []
    assert report(study.trusted(), store) == []
    assert len(fake.requests()) == 1


def test_the_command_line_says_where(
    measured: Study, store: Store, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "studies" / "tiny.yaml"
    path.write_text(path.read_text("utf-8") + "track: mlflow\n", encoding="utf-8")
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(path.parent))
    ended = call("report", "tiny")
    assert (ended.code, ended.err) == (0, "")
    assert f"MLflow: http://tracker/{MODELS[0]}, http://tracker/{MODELS[1]}" in ended.out
    fake.does("sys.exit('no server')")
    path.write_text(path.read_text("utf-8").replace("Three", "3"), encoding="utf-8")
    ended = call("report", "tiny")
    assert ended.code == 0
    assert "Not logged to MLflow: no server" in ended.out


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("tensorboard", "'mlflow' or 'wandb'"),
        ({"kind": "mlflow", "project": "p"}, "'project' is for 'kind: wandb'"),
        ({"kind": "wandb", "experiment": "e"}, "'experiment' is for 'kind: mlflow'"),
        ({"kind": "mlflow", "tracking_uri": "https://me:pw@host"}, "MLFLOW_TRACKING_PASSWORD"),
        ({"kind": "mlflow", "uri": "x"}, "uri"),
        ({}, "kind"),
    ],
)
def test_a_wrong_key_is_named(study: Study, given: Any, named: str) -> None:
    with pytest.raises(StudyError, match=named):
        study.changed(track=given)
