"""Size of a ledger of long prompts, and time to rerun a finished study.

    python benchmarks/ledger_scale.py [--calls 10000] [--documents 200] [--kb 400] [--dir DIR]

Documents are cut from the Python standard library's source, so they compress like text. Their
compressed size is summed over documents, with the ledger's codec. Answers come from a stub in this
process, so only this program's own cost is measured. The study is then rerun in a fresh process: by
`measure`, with an engine that must not start, and, with as many calls over short documents, by the
command `contextcliff profile`.

Targets (10,000 calls): ledger at most 3 x the compressed documents; rerun in at most 15 s, without
a call.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.engines.base import Decoding, Delta, PromptCount, Usage
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe

RECIPE = Recipe(max_output_tokens=16)
BINS = ["b00"]


@dataclass(frozen=True)
class Planned:
    example: Example
    length_tokens: int
    bin: str
    rank: int


class Sample:
    """A sample of documents of equal size, with evenly distributed questions."""

    def __init__(self, calls: int, documents: int, size: int) -> None:
        texts = _texts(documents, size)
        ids = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        self.texts = dict(zip(ids, texts, strict=True))
        self._planned = [
            Planned(
                Example(f"e{n}", ids[n % documents], f"What is defined in line {n}?", ("x",), "t"),
                size // 4,
                BINS[0],
                n,
            )
            for n in range(calls)
        ]

    def planned(self, bin: str, n: int) -> Sequence[Planned]:
        return self._planned[:n]

    def document_text(self, document_id: str) -> str:
        return self.texts[document_id]


def _texts(number: int, size: int) -> list[str]:
    """Return ``number`` different texts of ``size`` characters."""
    source = ""
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts:
            source += path.read_text(encoding="utf-8", errors="replace")
        if len(source) >= number * size:
            break
    # Where the library is shorter than all of them, begin again elsewhere in it.
    stride = max((len(source) - size) // number, 1)
    return [source[n * stride : n * stride + size] for n in range(number)]


class Stub:
    """An engine that answers at once and refuses to start if no call is left."""

    window_tokens = None

    def __init__(self, may_start: bool = True) -> None:
        self._may_start = may_start

    async def start(self) -> None:
        if not self._may_start:
            raise AssertionError("the engine was started for a finished study")

    async def stop(self) -> None: ...

    def identity(self) -> Identity:
        return Identity({"engine": "stub"})

    async def count_prompt_tokens(self, prompt: Prompt) -> PromptCount | None:
        return None

    async def stream(self, prompt: Prompt, decoding: Decoding) -> AsyncIterator[Delta]:
        yield Delta(text="937915", finish_reason="stop", usage=Usage(100_000, 4, 0))


def entry() -> ModelEntry:
    return ModelEntry.model_validate(
        {"name": "stub", "engine": "openai", "model_id": "stub", "base_url": "http://127.0.0.1:9/v1",
         "concurrency": 64}
    )  # fmt: skip


def once(folder: Path, sample: Sample, calls: int, may_start: bool = True) -> tuple[float, Any]:
    """Measure the missing calls; return seconds and summary."""
    started = time.perf_counter()
    with Ledger.open(folder / "state.db") as ledger:
        plan = CallPlan(
            study="scale", campaign="c", source=sample, recipe=RECIPE, bins=BINS, n=calls
        )
        summary = measure(plan, entry(), ledger, engine=Stub(may_start))
    return time.perf_counter() - started, summary


def size_and_rerun(folder: Path, calls: int, documents: int, kb: int) -> None:
    import pyarrow as pa

    sample = Sample(calls, documents, kb * 1000)
    codec = pa.Codec("zstd")
    compressed = sum(
        len(codec.compress(text.encode(), asbytes=True)) for text in sample.texts.values()
    )
    seconds, summary = once(folder, sample, calls)
    print(f"{calls:,} calls of {kb} KB prompts over {documents} documents: {seconds:.1f} s, "
          f"{summary.sent:,} sent")  # fmt: skip
    with Ledger.open(folder / "state.db") as ledger:
        ledger.write(lambda db: None)
        size = ledger.stats()["bytes"]
        print(f"  documents {sum(map(len, sample.texts.values())) / 1e6:.1f} MB, compressed "
              f"{compressed / 1e6:.1f} MB; prompts {calls * kb / 1e3:,.0f} MB")  # fmt: skip
        print(f"  ledger {size / 1e6:.1f} MB = {size / compressed:.2f} x the compressed documents"
              "  (must be <= 3)")  # fmt: skip
        started = time.perf_counter()
        verified = verify(ledger)
        print(f"  verified {verified.prompts:,} prompts byte for byte in "
              f"{time.perf_counter() - started:.1f} s, {verified.fault_count} errors")  # fmt: skip
    command = [sys.executable, __file__, "--again", str(folder)]
    given = ["--calls", str(calls), "--documents", str(documents), "--kb", str(kb)]
    print(subprocess.run([*command, *given], capture_output=True, text=True, check=True).stdout,
          end="")  # fmt: skip


class Endpoint(BaseHTTPRequestHandler):
    """An HTTP endpoint that counts its requests."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "stub", "max_model_len": 1_000_000}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "chat/completions" not in self.path:
            self.send_error(404)
            return
        type(self).asked += 1
        usage = {"prompt_tokens": len(body) // 3, "completion_tokens": 2}
        delta = {"content": "937915"}
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
        last = {"choices": [], "usage": usage}
        data = "".join(f"data: {json.dumps(c)}\n\n" for c in (chunk, last)) + "data: [DONE]\n\n"
        self._answer(data.encode(), "text/event-stream")

    def _answer(self, value: object, kind: str = "application/json") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


def by_command(folder: Path, calls: int) -> None:
    """Profile a study of short documents with the command, three times."""
    from contextcliff_dagster.reference.warehouse_documents import iter_ledgers

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    (folder / "models.yaml").write_text(
        f"models:\n  stub: {{engine: openai, model_id: stub, base_url: '{url}', concurrency: 32}}\n"
    )
    per_document = 10
    with (folder / "questions.jsonl").open("w") as file:
        number = 0
        for ledger in iter_ledgers(3, 2 * calls // per_document, 60, 400, questions_per_level=8):
            for question in ledger.questions[:per_document]:
                row = {"id": f"e{number}", "context": ledger.text, "question": question.question,
                       "answers": list(question.answers)}  # fmt: skip
                file.write(json.dumps(row) + "\n")
                number += 1
    env = {
        **os.environ,
        "CONTEXTCLIFF_HOME": str(folder / "store"),
        "CONTEXTCLIFF_MODELS": str(folder / "models.yaml"),
        "DAGSTER_HOME": str(folder / "dagster"),
    }
    (folder / "dagster").mkdir()
    (folder / "dagster" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    command = [
        *(sys.executable, "-m", "contextcliff_dagster.cli", "profile", "--json", "--yes"),
        *("--data", str(folder / "questions.jsonl"), "--model", "stub"),
        *("--samples-per-bin", str(calls // 10)),
    ]
    for what in ("first", "again, unchanged", "again, every asset rebuilt"):
        if "rebuilt" in what:
            for note in (folder / "store").rglob(".made_from.json"):
                note.unlink()
        before, started = Endpoint.asked, time.perf_counter()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(done.stderr)
        print(f"  contextcliff profile, {what}: {seconds:.1f} s, {Endpoint.asked - before:,} calls"
              + ("  (must be <= 15 s, 0 calls)" if "again" in what else ""))  # fmt: skip
    server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("--calls", 10_000), ("--documents", 200), ("--kb", 400)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--dir", type=Path, help="on the disk to be measured")
    parser.add_argument("--again", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.again:
        sample = Sample(args.calls, args.documents, args.kb * 1000)
        seconds, summary = once(args.again, sample, args.calls, may_start=False)
        print(f"  measured again in a fresh process: {seconds:.1f} s, {summary.sent} calls, "
              f"{summary.cached:,} cached  (must be <= 15 s, 0 calls)")  # fmt: skip
        return
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        size_and_rerun(Path(name), args.calls, args.documents, args.kb)
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        print(f"{args.calls:,} calls by the command line, stub server on loopback:")
        by_command(Path(name), args.calls)


if __name__ == "__main__":
    main()
