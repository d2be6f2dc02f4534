"""Bad input: one sentence, exit code 2, no traceback, nothing lost.

Disks and limits are met by a real process; the others say their sentence in this one.
"""

from __future__ import annotations

import http.server
import json
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.files import warehouse_files
from contextcliff_dagster_tests.support.terminal import COMMAND, Ended, assert_one_sentence, call

SMALL = ("--model", "reference-short", "--samples-per-bin", "2")


@pytest.mark.parametrize("wrong", warehouse_files.SPOILED)
def test_a_file_that_cannot_be_measured(
    wrong: str, tmp_path: Path, contextcliff_home: Path
) -> None:
    spoil, words = warehouse_files.SPOILED[wrong]
    path = tmp_path / "own.jsonl"
    spoil(path)
    assert_one_sentence(call("--data", str(path), *SMALL), *words)
    assert not list(contextcliff_home.glob("_studies/*")), "a study of nothing was left behind"


def _endpoint(folder: Path, url: str) -> dict[str, str]:
    path = folder / "models.yaml"
    path.write_text(
        "models:\n  mine:\n    engine: openai\n    model_id: m\n"
        f"    base_url: {url}\n    api_key_env: OUR_TEST_KEY\n    max_attempts: 2\n"
    )
    return {"CONTEXTCLIFF_MODELS": str(path), "OUR_TEST_KEY": "sk-very-secret"}


@contextmanager
def _refusing(status: int) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def _refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b'{"error": {"message": "Incorrect API key provided: sk-very-secret"}}'
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _refuse

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_a_key_that_is_refused(tmp_path: Path) -> None:
    with _refusing(401) as url:
        ended = call("profile", "quick", "--model", "mine", env=_endpoint(tmp_path, url))
    assert_one_sentence(ended, "mine", "401", "api_key_env")
    assert "sk-very-secret" not in ended.err + ended.out


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
@pytest.mark.parametrize(
    "size",
    [
        "200k",
        "1600k",
        "2m",
    ],
)
def test_a_disk_that_is_full_from_the_start(size: str, tmp_path: Path) -> None:
    # Too small for Dagster's tables, the corpus, the call ledger, Dagster's events.
    with _mounted(tmp_path / "small", f"size={size}") as store:
        ended = _without_dagster_home("profile", "quick", *SMALL, "--store", str(store))
    assert_one_sentence(ended, "full")


def test_files_that_may_not_grow_are_named(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = subprocess.run(
        [*COMMAND, "profile", "quick", *SMALL, "--store", str(tmp_path / "store")],
        capture_output=True, text=True, preexec_fn=limit, check=False,
    )  # fmt: skip
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert_one_sentence(ended, str(tmp_path / "store"), "kept")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_a_store_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")
    with _mounted(tmp_path / "store", "size=1m,ro") as store:
        for command in ("profile", "prepare", "report"):
            ended = call(command, "quick", "--store", str(store), recorded=True)
            assert_one_sentence(ended, str(store))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_without_permission(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o500)
    ended = _without_dagster_home("profile", "quick", "--store", str(tmp_path / "store"))
    assert_one_sentence(ended, str(tmp_path / "store"))


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_text("")
    assert_one_sentence(_without_dagster_home("profile", "quick", "--store", str(path)), str(path))


def _without_dagster_home(*args: str) -> Ended:
    """Dagster's home then lies in the store, as it does for most people."""
    done = subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, check=False,
        env={k: v for k, v in os.environ.items() if k != "DAGSTER_HOME"},
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def test_a_bin_with_one_example_is_merged_as_the_study_says(tmp_path: Path) -> None:
    data = warehouse_files.rows(40, max_tokens=120)
    data += warehouse_files.rows(1, min_tokens=350, max_tokens=420)
    data[-1]["id"] = "alone"
    warehouse_files.write(tmp_path / "own.jsonl", data)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ncorpus: {kind: file, path: own.jsonl}\ntokenizer: reference\n"
        "models: [reference-short]\nprompt: {max_output_tokens: 12}\n"
        "bins: {kind: fixed, width: 100, count: 4, starved: merge}\n"
        "sampling: {samples_per_bin: 5, pilot_per_bin: 2}\n"
    )
    ended = call("prepare", "mine", "--json", env={"CONTEXTCLIFF_STUDIES": str(tmp_path)})
    assert ended.code == 0, ended.err
    bins = json.loads(ended.out)["bins"]
    assert any(b["merged_into"] for b in bins)
    assert sum(b["n"] for b in bins) == 41
