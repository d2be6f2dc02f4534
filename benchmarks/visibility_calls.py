"""The grid of 48 runs over HTTP: its cost apart from training, and the cost of 30 kills.

    python benchmarks/visibility_calls.py [--kills 30] [--steps 10] [--seed 0]

A loopback server waits 20 ms, counts the request, and replies with a configuration that depends on
the prompt only. `contextcliff visibility grid toy` measures over it: first undisturbed; then as a
new campaign of the same store, with every training known, so only this program's own cost is left
(must be <= 60 s and 500 MB); then in a separate store, killed with SIGKILL repeatedly after a
random number of requests, and left to finish. The claims:

- the steps equal those of the undisturbed run: none lost, none duplicated;
- no prompt was sent more often than there, except those in flight at a kill, and no more of these
  than the ledger shows as possibly paid;
- the final command sends nothing.

Exits with 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

DELAY_S, CONCURRENCY = 0.02, 8
COUNT = open_tokenizer("tiktoken:o200k_base").count
MOST_SECONDS, MOST_MB = 60.0, 500.0


class Server(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint; ``asked``: number of requests for each prompt."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Counter[str]] = Counter()
    came: ClassVar[threading.Semaphore] = threading.Semaphore(0)

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "stub", "max_model_len": 100_000}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "chat/completions" not in self.path:
            self.send_error(404)
            return
        prompt = "\n".join(turn["content"] for turn in body["messages"])
        type(self).asked[prompt] += 1
        type(self).came.release()
        time.sleep(DELAY_S)
        usage = {"prompt_tokens": COUNT(prompt) + 8, "completion_tokens": 20}
        delta = {"content": reply_to(prompt)}
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
        parts = (chunk, {"choices": [], "usage": usage})
        data = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
        self._answer(data.encode(), "text/event-stream")

    def _answer(self, value: object, kind: str = "application/json") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def reply_to(prompt: str) -> str:
    """Return a configuration of the toy task or, now and then, plain words."""
    rng = random.Random(hashlib.sha256(prompt.encode()).digest())
    if rng.random() < 0.05:
        return "I would try a larger penalty."
    value = {"C": float(f"{10 ** rng.uniform(-2, 2):.3g}"), "max_iter": rng.randint(10, 1000)}
    return json.dumps(value)


class Grid:
    """The command, run in one store."""

    def __init__(self, folder: Path, url: str, steps: int) -> None:
        self.folder = folder
        (folder / "models.yaml").write_text(
            "models:\n  stub: {engine: openai, model_id: stub, tokenizer: 'tiktoken:o200k_base', "
            f"base_url: '{url}', concurrency: {CONCURRENCY}}}\n"
        )
        self._env = {
            **os.environ,
            "CONTEXTCLIFF_HOME": str(folder / "store"),
            "CONTEXTCLIFF_MODELS": str(folder / "models.yaml"),
            "PYTHONPATH": str(ROOT),
        }
        self._command = [sys.executable, "-m", "contextcliff_dagster.cli"]
        self._grid = ["visibility", "grid", "toy", "--model", "stub", "--yes", "--json"]
        self._grid += ["--num-steps", str(steps)]

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [*self._command, *self._grid],
                env=self._env,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def finish(self) -> tuple[float, float]:
        """Run the command to its end; return wall seconds and peak MB."""
        began, process = time.perf_counter(), self.start()
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said = (self.folder / "output").read_text()[-2000:]
            raise SystemExit(f"the command failed with status {status}: {said}")
        return time.perf_counter() - began, used.ru_maxrss / 1024

    def new_campaign(self, study: str) -> None:
        command = [*self._command, "campaign", "new", study, "--name", "again"]
        subprocess.run(command, env=self._env, check=True, capture_output=True, cwd=self.folder)

    @property
    def study(self) -> str:
        (file,) = (self.folder / "store" / "_studies").glob("visibility-*.yaml")
        return file.stem

    def steps(self) -> Counter[tuple[Any, ...]]:
        """Return every recorded step: run, number, configuration, scores."""
        import pyarrow.parquet as pq

        names = ["run", "step", "config", "validation", "test", "raw_output"]
        steps: Counter[tuple[Any, ...]] = Counter()
        for file in (self.folder / "store" / self.study / "visibility_records").rglob("*.parquet"):
            if "campaign=again" in str(file):
                continue
            table = pq.read_table(file, columns=names, partitioning=None)
            steps.update(tuple(row[name] for name in names) for row in table.to_pylist())
        return steps

    def perhaps_paid(self) -> int:
        """Count the attempts that were in flight when a process died, by the ledger."""
        import sqlite3

        with sqlite3.connect(self.folder / "store" / "state.db") as db:
            (count,) = db.execute("SELECT count(*) FROM attempts WHERE ended_at IS NULL").fetchone()
        return int(count)


def killed(grid: Grid, kills: int, rng: random.Random) -> int:
    """Kill the command ``kills`` times, after random requests; return how often it was alive."""
    alive = 0
    for number in range(kills):
        process = grid.start()
        for _ in range(rng.randint(1, 24)):
            if not Server.came.acquire(timeout=120):
                break
        time.sleep(rng.uniform(0, 0.05))
        alive += process.poll() is None
        process.kill()
        process.wait()
        while Server.came.acquire(blocking=False):
            pass
        print(f"  kill {number + 1}: {Server.asked.total()} requests so far", flush=True)
    return alive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    failed = False
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "whole").mkdir()
        whole = Grid(Path(name) / "whole", url, given.steps)
        seconds, mb = whole.finish()
        expected, sent = whole.steps(), Counter(Server.asked)
        print(
            f"with landscape and trainings: {seconds:.1f} s, {mb:.0f} MB, {sent.total()} requests"
        )
        whole.new_campaign(whole.study)
        seconds, mb = whole.finish()
        print(f"beside training: {seconds:.1f} s, {mb:.0f} MB (<= {MOST_SECONDS:g} s, {MOST_MB:g})")
        failed |= seconds > MOST_SECONDS or mb > MOST_MB

        (Path(name) / "killed").mkdir()
        broken = Grid(Path(name) / "killed", url, given.steps)
        shutil.copytree(
            whole.folder / "store" / "_visibility", broken.folder / "store" / "_visibility"
        )
        Server.asked.clear()
        alive = killed(broken, given.kills, random.Random(given.seed))
        broken.finish()
        steps, again = broken.steps(), Counter(Server.asked) - sent
        lost, twice = expected - steps, steps - expected
        paid = broken.perhaps_paid()
        print(
            f"{given.kills} kills, {alive} of a living command: {steps.total()} steps of "
            f"{expected.total()}, {lost.total()} lost, {twice.total()} twice or other; "
            f"{again.total()} prompts sent again, {paid} perhaps paid by the ledger"
        )
        before = Server.asked.total()
        broken.finish()
        print(f"the command after the last: {Server.asked.total() - before} requests")
        failed |= bool(lost or twice or again.total() > paid or Server.asked.total() != before)
    server.shutdown()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
