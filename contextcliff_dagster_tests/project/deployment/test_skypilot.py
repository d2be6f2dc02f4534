"""docker/skypilot.yaml by SkyPilot's own loader, and its run on this machine, without a GPU."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import SHIPPED_MODELS, load_models
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.project.deployment.files import COMPOSE, DOCKER
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.postgres import free_port
from contextcliff_dagster_tests.support.requirements import deploy_tool, require

TASK: dict[str, Any] = yaml.safe_load((DOCKER / "skypilot.yaml").read_text("utf-8"))
LOAD = """
import json, sys
import sky
config, given = json.load(sys.stdin)
task = sky.Task.from_yaml_config(config, env_overrides=list(given.items()))
print(json.dumps({
    "run": task.run,
    "envs": task.envs,
    "secrets": sorted(task.secrets),
    "storage": {at: [s.source, s.mode.value] for at, s in task.storage_mounts.items()},
    "gpus": sorted(name for r in task.resources for name in r.accelerators),
}))
"""


def load(config: dict[str, Any], folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The task as SkyPilot reads it, in its own environment."""
    require("deploy_tools")
    return subprocess.run(
        [deploy_tool("python"), "-c", LOAD],
        cwd=CHECKOUT,
        env=os.environ | {"HOME": str(folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
        input=json.dumps([config, given]),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(300)
def test_skypilot_loads_the_task_and_asks_for_study_and_bucket(tmp_path: Path) -> None:
    done = load(TASK, tmp_path, STUDY="mine", BUCKET="s3://a-bucket")
    assert done.returncode == 0, done.stderr
    task = json.loads(done.stdout.splitlines()[-1])
    assert task["envs"]["STUDY"] == "mine"
    assert task["secrets"] == ["CONTEXTCLIFF_LEDGER", "HF_TOKEN"]
    assert task["storage"] == {task["envs"]["KEPT"]: ["s3://a-bucket", "MOUNT"]}
    assert task["gpus"] == ["A100", "A10G", "L4", "L40S"]
    for given, missing in (({"BUCKET": "s3://a-bucket"}, "STUDY"), ({"STUDY": "x"}, "BUCKET")):
        refused = load(TASK, tmp_path, **given)
        assert refused.returncode
        assert f"'{missing}' is None" in refused.stderr
    misspelt = {**TASK, "resources": {**TASK["resources"], "accelerator": {"L4": 1}}}
    refused = load(misspelt, tmp_path, STUDY="mine", BUCKET="s3://a-bucket")
    assert refused.returncode
    assert "accelerator" in refused.stderr


def test_the_task_serves_the_model_of_the_shipped_entry_with_exact_versions() -> None:
    entry = load_models([SHIPPED_MODELS])[TASK["envs"]["MODEL"]]
    served = shlex.split(TASK["envs"]["VLLM_ARGUMENTS"])
    assert served[0] == entry.model_id
    assert "CONTEXTCLIFF_QWEN_URL" in SHIPPED_MODELS.read_text("utf-8")
    (vllm,) = re.findall(r"vllm==(\S+)", TASK["setup"])
    assert COMPOSE["services"]["vllm"]["image"].endswith(f":v{vllm}")
    # uv is that of the lock, with its hashes, and so is all that measures.
    (taken,) = re.findall(r"^(awk .*) > ", TASK["setup"], re.MULTILINE)
    done = subprocess.run(
        ["sh", "-c", taken], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"uv==[\d.]+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", done.stdout)
    assert TASK["setup"].count("--require-hashes") == 2
    (script,) = re.findall(r"sh (\S+)$", TASK["run"].strip())
    assert (CHECKOUT / script).is_file()
    assert not [word for word in ("password", "token=") if word in TASK["run"].lower()]


VLLM = """#!/bin/sh
# Stands in for `vllm serve MODEL ... --port PORT`: a reference model, and a count of starts.
echo "$@" >> "$STARTS"
while [ "$1" != --port ]; do shift; done
exec contextcliff serve reference-short --port "$2" --request-log "$REQUESTS" --delay-ms "$DELAY_MS"
"""


PROGRAMS = {
    "vllm": "exec sleep 60",
    "curl": "exit 0",
    # The ledger is one line for each machine that has worked on it.
    "contextcliff": """case "$1" in
ledger) cp "$CONTEXTCLIFF_HOME/state.db" "$3";;
profile) echo "$2 $4" >> "$CONTEXTCLIFF_HOME/state.db";;
export) echo "$MODEL" > "$3";;
esac""",
    # From one second to the next, so that no copy has another's name.
    "date": 'echo x >> "$CLOCK"; exec printf "2027-01-31T%06dZ" "$(wc -l < "$CLOCK")"',
}


def machine_without_programs(folder: Path, study: str, model: str, **more: str) -> Path:
    """Run the script, to its end, on a new machine with stand-ins of what it calls; its store."""
    programs = folder / "stand-ins"
    programs.mkdir(exist_ok=True)
    for name, text in (PROGRAMS | more).items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (folder / "kept").mkdir(exist_ok=True)  # SkyPilot's mount
    home = folder / f"machine-{len(list(folder.glob('machine-*')))}"
    home.mkdir()
    given = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "CLOCK": str(folder / "clock"),
        "CONTEXTCLIFF_HOME": str(home),
        "CONTEXTCLIFF_LEDGER": "",
        "STUDY": study,
        "MODEL": model,
        "KEPT": str(folder / "kept"),
        "VLLM_ARGUMENTS": "x",
    }
    done = subprocess.run(
        ["sh", DOCKER / "skypilot.sh"],
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not more), done.stderr
    return home


def test_studies_and_models_in_one_bucket_leave_each_other_alone(tmp_path: Path) -> None:
    """Also where names differ in signs that a file's name cannot have."""
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "org/m+1"), ("a", "org/m-1"), ("a", "org+m-1")]
    pairs += [("b", "../../m"), ("b", "m" * 300 + "1"), ("b", "m" * 300 + "2")]
    for times in (1, 2, 3):
        for study, model in pairs:
            home = machine_without_programs(tmp_path, study, model)
            assert (home / "state.db").read_text() == f"{study} {model}\n" * times
    folders = list((tmp_path / "kept").iterdir())
    assert len(folders) == len(pairs)
    for folder in folders:
        (archive,) = folder.glob("*.zip")
        copies = sorted(folder.glob("ledger-*.db"))
        assert len(copies) == 2
        assert {*folder.iterdir()} == {archive, *copies}
        (line,) = {*copies[-1].read_text().splitlines()}
        assert line == f"{archive.stem} {archive.read_text().strip()}"


def test_a_copy_that_is_cut_short_is_nobodys_newest(tmp_path: Path) -> None:
    machine_without_programs(tmp_path, "a", "m")
    # The machine is gone while it copies into the bucket.
    half = 'case "$2" in *kept*) printf half > "$2"; exit 1;; esac; exec /bin/cp "$@"'
    half = f'[ ! -d "$2" ] || set -- "$1" "$2/${{1##*/}}"\n{half}'
    machine_without_programs(tmp_path, "a", "m", cp=half)
    (tmp_path / "stand-ins" / "cp").unlink()
    (folder,) = (tmp_path / "kept").iterdir()
    assert [f.read_text() for f in folder.glob("ledger-*.db")] == ["a m\n"]
    assert (folder / "a.zip").read_text() == "m\n"
    home = machine_without_programs(tmp_path, "a", "m")
    assert (home / "state.db").read_text() == "a m\n" * 2
    assert not list(folder.glob(".*")), "halves are removed"


@pytest.mark.timeout(400)
def test_another_machine_goes_on_from_the_kept_ledger(
    study: Study, store: Store, tmp_path: Path
) -> None:
    """The script of the task, on two machines with nothing in common but the bucket."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "vllm").write_text(VLLM)
    (programs / "vllm").chmod(0o755)
    kept = tmp_path / "kept"
    kept.mkdir()
    entry = {
        "engine": "openai",
        "model_id": "reference-short",
        "base_url": "${CONTEXTCLIFF_QWEN_URL}",
        "tokenizer": "reference",
        "window_tokens": 8192,
        "concurrency": 1,
        "price": {"input_usd_per_mtok": 0, "output_usd_per_mtok": 0},
    }
    (tmp_path / "models.yaml").write_text(json.dumps({"models": {"served": entry}}))
    port = free_port()

    def machine(name: str, delay_ms: int = 0) -> subprocess.Popen[bytes]:
        home = tmp_path / name
        home.mkdir()
        path = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
        given = {
            "PATH": os.pathsep.join(path),
            "HOME": str(home),
            "CONTEXTCLIFF_HOME": str(home / "store"),
            "CONTEXTCLIFF_LEDGER": "",
            "CONTEXTCLIFF_MODELS": str(tmp_path / "models.yaml"),
            "CONTEXTCLIFF_STUDIES": str(tmp_path / "studies"),
            "STARTS": str(tmp_path / "starts"),
            "DELAY_MS": str(delay_ms),
            "REQUESTS": str(home / "requests.jsonl"),
            "VLLM_PORT": str(port),
            "STUDY": "tiny",
            "MODEL": "served",
            "KEPT": str(kept),
            "VLLM_ARGUMENTS": TASK["envs"]["VLLM_ARGUMENTS"],
        }
        with (tmp_path / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                ["sh", DOCKER / "skypilot.sh"],
                env=os.environ | given,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def printed(name: str) -> str:
        return (tmp_path / f"{name}.log").read_text(errors="replace")

    def asked(name: str) -> int:
        log = tmp_path / name / "requests.jsonl"
        whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
        return [json.loads(line)["event"] for line in whole.splitlines()].count("received")

    first = machine("first", delay_ms=1000)
    while asked("first") < 4:  # the machine is taken away while answers are on their way
        assert first.poll() is None, printed("first")
        time.sleep(0.1)
    first.terminate()
    assert first.wait(120) == 143, printed("first")
    (copy,) = kept.glob("*/ledger-*.db")
    with Ledger.open(copy) as ledger:
        answers = ledger.stats()["answers"]
    assert 3 <= answers < 12
    second = machine("second")
    assert second.wait(300) == 0, printed("second")
    assert asked("second") == 12 - answers
    assert (copy.parent / "tiny.zip").stat().st_size
    with Ledger.open(max(copy.parent.glob("ledger-*.db"))) as ledger:
        assert ledger.stats()["answers"] == 12
    starts = (tmp_path / "starts").read_text().splitlines()
    assert [line.split()[:2] for line in starts] == [["serve", "Qwen/Qwen2.5-7B-Instruct"]] * 2
