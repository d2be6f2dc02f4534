"""Cost of the whole command, from the shell to the report, next to other tools' commands.

    python benchmarks/whole_command.py [--peers BIN] [--base CHECKOUT] [--documents 20 1000]
                                       [--repeats 3] [--json]

Each document (2,000 to 18,000 tokens, 10,000 on average) has one question, and all are asked, 64 at
a time, of a stub server that answers after 50 ms; a tenth of the answers to short documents and
two thirds of those to long ones are wrong, so that there is a drop to analyse. Every run has an
empty store. Ours counts tokens, draws a sample, keeps a ledger, analyses and writes the report; the
peers send the same prompts and score the answers.

CPU seconds are user and system time of the command with all its children; memory is the largest
sum over its processes of their resident pages, looked at 20 times a second, or the largest
process's own peak, if that is more. ``--peers`` names the folder of the commands `inspect` and
`lm_eval` (`make install-log-tools`: .venv-logs/bin). ``--base`` runs another checkout with the same
interpreter, in turn with this one, so that a busy machine slows both alike. The medians of the
repeats are printed. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from overhead import CONCURRENCY, stub
from overhead_peers import WORDS

DELAY_MS = 50
CHARS_PER_TOKEN = 5
TOKENS = (2_000, 18_000)
ANSWER = "93791508"
CPU_S = {20: 5.0, 1000: 12.0}
PEAK_MB = {1000: 450.0}

_INSPECT_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


@task
def stub():
    data = json_dataset({path!r}, FieldSpec(input="prompt", target="target"))
    return Task(data, solver=generate(), scorer=exact())
"""
_LM_EVAL_TASK = {
    "task": "stub",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{prompt}}",
    "doc_to_target": "{{target}}",
    "generation_kwargs": {"until": [], "max_gen_toks": 64, "do_sample": False},
    "metric_list": [{"metric": "exact_match"}],
}


class Cost(NamedTuple):
    """Cost of one run of a command."""

    cpu_s: float
    peak_mb: float
    wall_s: float


def write_data(folder: Path, documents: int) -> None:
    """Write `ours.jsonl` (document, question, answers) and `peers.jsonl` (prompt, target)."""
    rng = random.Random(0)
    shortest, longest = (tokens * CHARS_PER_TOKEN for tokens in TOKENS)
    page = " ".join(rng.choices(WORDS, k=longest // 4))
    with (folder / "ours.jsonl").open("w") as ours, (folder / "peers.jsonl").open("w") as peers:
        for number in range(documents):
            on = number / max(documents - 1, 1)
            text = f"Document {number}\n{page}"[: round(shortest + on * (longest - shortest))]
            question = f"How many crates does SKU-{number} have? Answer with the number only."
            target = ANSWER if rng.random() < (0.9 if on < 0.6 else 0.35) else "7"
            asked = {"document": text, "question": question, "answers": [target]}
            ours.write(json.dumps(asked, ensure_ascii=False) + "\n")
            prompt = {"prompt": f"{text}\n{question}", "target": target}
            peers.write(json.dumps(prompt, ensure_ascii=False) + "\n")


def commands(
    folder: Path, url: str, documents: int, peers: Path | None, base: Path | None
) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return name -> command line and environment, for the commands that can be run."""
    models = folder / "models.yaml"
    entry = f"engine: openai, base_url: '{url}', concurrency: {CONCURRENCY}, revision: r1"
    models.write_text(f"models:\n  stub: {{{entry}}}\n")
    ours = [sys.executable, "-m", "contextcliff_dagster.cli", "--data", str(folder / "ours.jsonl")]
    ours += ["--model", "stub", "--store", "STORE", "--yes"]
    ours += ["--samples-per-bin", str(max(documents // 10, 1))]
    named = {}
    for name, checkout in (("ours", HERE.parent), ("ours, base", base)):
        if checkout is not None:
            where = {"PYTHONPATH": str(checkout), "CONTEXTCLIFF_MODELS": str(models)}
            named[name] = (ours, where)
    if peers is not None and (peers / "inspect").exists():
        (folder / "task.py").write_text(_INSPECT_TASK.format(path=str(folder / "peers.jsonl")))
        many = str(CONCURRENCY)
        inspect = [str(peers / "inspect"), "eval", "task.py", "--log-dir", "STORE"]
        inspect += ["--model", "openai-api/stub/stub", "--max-connections", many, "--max-samples"]
        inspect += [many, "--display", "none", "--temperature", "0", "--max-tokens", "64"]
        named["inspect_ai"] = (inspect, {"STUB_API_KEY": "none", "STUB_BASE_URL": url})
    if peers is not None and (peers / "lm_eval").exists():
        (folder / "tasks").mkdir(exist_ok=True)
        files = {"data_files": {"test": str(folder / "peers.jsonl")}}
        task = _LM_EVAL_TASK | {"dataset_kwargs": files}
        (folder / "tasks" / "stub.yaml").write_text(json.dumps(task))
        to = f"model=stub,base_url={url}/chat/completions,num_concurrent={CONCURRENCY}"
        lm_eval = [str(peers / "lm_eval"), "--model", "local-chat-completions", "--tasks", "stub"]
        lm_eval += ["--include_path", str(folder / "tasks"), "--apply_chat_template"]
        lm_eval += ["--log_samples", "--output_path", "STORE", "--model_args"]
        lm_eval += [f"{to},tokenized_requests=False,max_retries=1,max_length=1000000"]
        offline = {"OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
        named["lm-eval"] = (lm_eval, offline)
    return named


def run(command: list[str], environment: dict[str, str], folder: Path) -> Cost:
    """Run the command in ``folder``, with an empty folder in place of ``STORE``."""
    store = tempfile.mkdtemp()
    began, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [store if word == "STORE" else word for word in command],
            env={**os.environ, **environment},
            stdout=output,
            stderr=output,
            cwd=folder,
        )
        while True:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            peak = max(peak, _resident_mb(process.pid))
            time.sleep(0.05)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{command[0]} failed:\n{output.read()[-4000:]}")
    shutil.rmtree(store)
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Cost(used.ru_utime + used.ru_stime, max(peak, used.ru_maxrss / unit), wall_s)


def _resident_mb(pid: int) -> float:
    """Return the resident MB of the process and its descendants; 0 without /proc."""
    pages, left = 0, [str(pid)]
    while left:
        one = Path("/proc") / left.pop()
        try:
            pages += int((one / "statm").read_text().split()[1])
            for task in (one / "task").iterdir():
                left += (task / "children").read_text().split()
        except (OSError, IndexError):  # it has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def contest(
    documents: int, repeats: int, peers: Path | None, base: Path | None
) -> dict[str, list[Cost]]:
    """Run all commands in turn, ``repeats`` times, on the same data; return their costs."""
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name, stub(DELAY_MS) as url:
        folder = Path(name)
        write_data(folder, documents)
        for _ in range(repeats):
            for who, (command, where) in commands(folder, url, documents, peers, base).items():
                costs.setdefault(who, []).append(run(command, where, folder))
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", type=Path, help="folder of the commands inspect and lm_eval")
    parser.add_argument("--base", type=Path, help="another checkout to compare with")
    parser.add_argument("--documents", type=int, nargs="*", default=[20, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print all runs as JSON at the end")
    args = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation is compiled, too
    held, everything = True, {}
    # Commands run in folders of their own.
    peers, base = (path and path.absolute() for path in (args.peers, args.base))
    for documents in args.documents:
        print(f"\n== {documents:,} documents, {args.repeats} times each, medians", flush=True)
        everything[documents] = contest(documents, args.repeats, peers, base)
        for name, costs in everything[documents].items():
            cpu_s, peak_mb, wall_s = (
                statistics.median(column) for column in zip(*costs, strict=True)
            )
            print(f"{name:<12} {cpu_s:6.2f} CPU s | {peak_mb:5.0f} MB | {wall_s:6.1f} s")
            if name == "ours":
                for what, value, limits in (("CPU s", cpu_s, CPU_S), ("MB", peak_mb, PEAK_MB)):
                    limit = limits.get(documents)
                    if limit is not None:
                        held = held and value <= limit
                        met = "" if value <= limit else " MISSED"
                        print(f"   {what}: goal <= {limit:g}{met}")
    if args.json:
        print(json.dumps(everything))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
