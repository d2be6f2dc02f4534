"""Cost of `contextcliff prepare` for a million examples: time, memory, size of the manifest.

    python benchmarks/many_examples.py [--examples 1000000] [--questions 5] [--words 30 300]
                                       [--bins 10] [--dir DIR]

The corpus is a JSONL file with one example per row. Texts of `--words` words (log-uniform) are cut
from the Python standard library's source; each has `--questions` questions. All examples are drawn.
Then the command is run again, and a fresh process loads the manifest, as every step does.

Targets (1,000,000): at most 5 minutes on two cores, 1 GB peak memory over all processes.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from tree_memory import Followed, follow

STUDY = """
name: many
corpus: {{kind: file, path: data.jsonl}}
tokenizer: tiktoken:o200k_base
bins: {{kind: quantile, count: {bins}}}
sampling: {{samples_per_bin: {examples}, questions_per_document: {questions}, seed: 0}}
prompt: {{mode: chat, max_output_tokens: 12}}
models: [stub]
scoring: {{primary: em}}
"""
MODELS = """
models:
  stub: {{engine: openai, model_id: stub, base_url: '{url}', concurrency: 64, revision: r1}}
"""
NOWHERE = "http://127.0.0.1:9/v1"
PREPARE = [sys.executable, "-m", "contextcliff_dagster.cli", "prepare", "many"]
LOAD = [
    sys.executable,
    "-c",
    "import sys, pathlib\n"
    "from contextcliff_dagster.sampling.manifest import load_manifest\n"
    "print(load_manifest(pathlib.Path(sys.argv[1])).examples.num_rows)",
]


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of commands that see only the study in ``folder``."""
    return {
        "CONTEXTCLIFF_HOME": str(folder / "store"),
        "CONTEXTCLIFF_STUDIES": str(folder),
        "CONTEXTCLIFF_MODELS": str(folder / "models.yaml"),
        "PYTHONPATH": str(HERE.parent),
    }


def write_study(
    folder: Path, given: argparse.Namespace, examples: int, url: str = NOWHERE, answer: str = "7"
) -> float:
    """Write corpus, study and model; return the MB of distinct text.

    ``answer`` is right for nine of ten examples at the corpus's start, for four at its end.
    """
    source: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts and len(source) < 2_000_000:
            source += path.read_text(encoding="utf-8", errors="replace").split()
    rng = random.Random(0)
    low, high = map(math.log, given.words)
    size = 0
    with (folder / "data.jsonl").open("w") as file:
        for number in range(0, examples, given.questions):
            words = int(math.exp(rng.uniform(low, high)))
            start = rng.randrange(len(source) - words)
            text = f"Document {number}\n" + " ".join(source[start : start + words])
            size += len(text.encode())
            for question in range(min(given.questions, examples - number)):
                right = answer if rng.random() < 0.9 - 0.5 * number / examples else "none"
                row = {"context": text, "question": f"What is in line {question}?"}
                file.write(json.dumps({**row, "answers": [right]}) + "\n")
    (folder / "many.yaml").write_text(
        STUDY.format(bins=given.bins, examples=examples, questions=given.questions)
    )
    (folder / "models.yaml").write_text(MODELS.format(url=url))
    return size / 1e6


def show(what: str, run: Followed) -> None:
    print(
        f"{what}: {run.wall_s:.0f} s, {run.cpu_s:.0f} CPU s, peak {run.peak_mb:,.0f} MB "
        f"(by tenths of its time {' '.join(f'{mb:.0f}' for mb in run.parts(10))})",
        flush=True,
    )


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, default in (("examples", 1_000_000), ("questions", 5), ("bins", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--words", type=int, nargs=2, default=(30, 300))
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as name:
        folder = Path(name)
        text_mb = write_study(folder, given, given.examples)
        print(f"{given.examples:,} examples, {text_mb:,.0f} MB of distinct text", flush=True)
        environment = environment_of(folder)
        show("prepare", follow(PREPARE, environment, folder))
        show("prepare again", follow(PREPARE, environment, folder))
        manifest = folder / "store" / "many" / "manifest"
        loaded = follow([*LOAD, str(manifest)], environment, folder)
        show(f"manifest of {int(loaded.stdout):,} examples loaded", loaded)
        for path in sorted(manifest.iterdir()):
            print(f"  {path.name}: {path.stat().st_size / 1e6:,.2f} MB")


if __name__ == "__main__":
    main()
