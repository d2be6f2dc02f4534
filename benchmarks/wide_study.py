"""Cost of a wide study in Dagster: many models x bins x campaigns, with a stub server.

    python benchmarks/wide_study.py [--models 50] [--bins 20] [--examples 5] [--campaigns 10]
                                    [--dir DIR]

Prints CPU seconds of each campaign, of loading the definitions, and of scoring what has not
changed; bytes of the largest event of each asset; and rows of the event log. A folder given by
``--dir`` is kept, and the campaigns that it has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from many_examples import environment_of
from overhead import stub
from overhead_peers import WORDS

STUDY = """
name: wide
corpus: {{kind: file, path: data.jsonl}}
tokenizer: tiktoken:o200k_base
bins: {{kind: quantile, count: {bins}}}
sampling: {{samples_per_bin: {examples}, pilot_per_bin: {examples}, seed: 0}}
prompt: {{mode: chat, max_output_tokens: 12}}
models: [{models}]
scoring: {{primary: em}}
"""
MODEL = "  {name}: {{engine: openai, base_url: {url}, model_id: stub, revision: of-{name}}}\n"
ANSWER = "93791508"

MOST_CPU_S = 1.5


def write_study(folder: Path, url: str, given: argparse.Namespace) -> None:
    """Write the documents, the study and the models."""
    rng = random.Random(0)
    count = given.bins * given.examples
    with (folder / "data.jsonl").open("w") as file:
        for number in range(count):
            text = " ".join(rng.choices(WORDS, k=50 + 20 * number))
            right = ANSWER if rng.random() < (0.9 if number < 0.6 * count else 0.3) else "7"
            line = {"document": f"Document {number}\n{text}", "question": "How many?"}
            file.write(json.dumps({**line, "answers": [right]}) + "\n")
    names = [f"m{number:02d}" for number in range(given.models)]
    text = STUDY.format(bins=given.bins, examples=given.examples, models=", ".join(names))
    (folder / "wide.yaml").write_text(text)
    models = [MODEL.format(name=name, url=url) for name in names]
    (folder / "models.yaml").write_text("models:\n" + "".join(models))


def cpu_of(command: list[str], folder: Path) -> tuple[float, str]:
    """Run a command; return the CPU seconds of it and its children, and its output."""
    environment = {**os.environ, **environment_of(folder)}
    before = os.times()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stderr[-2_000:] or done.stdout[-2_000:])
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system, done.stdout


CONTEXTCLIFF = [sys.executable, "-m", "contextcliff_dagster.cli"]
DEFINITIONS = [
    sys.executable,
    "-c",
    "from contextcliff_dagster.definitions import defs; defs().get_repository_def()",
]
SCORE = [
    sys.executable,
    "-c",
    "import sys, time\n"
    "from contextcliff_dagster.experiments.common.measurement import StudyRun\n"
    "from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE\n"
    "from contextcliff_dagster.store import Store\n"
    "from contextcliff_dagster.studies import load_studies\n"
    "with StudyRun.open(load_studies()['wide'], Store.default(), sys.argv[1]) as run:\n"
    "    began = time.process_time()\n"
    "    LENGTH_PROFILE.score_campaign(run)\n"
    "    print(f'{time.process_time() - began:.2f}')\n",
]


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("models", 50), ("bins", 20), ("examples", 5), ("campaigns", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, stub(1.0) as url:
        folder = given.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_study(folder, url, given)
        figures(folder, given.campaigns)


def figures(folder: Path, campaigns: int) -> None:
    """Measure the missing campaigns, and print the cost of each part."""
    for number in range(campaigns):
        name = f"c{number:02d}"
        if (folder / "store" / "wide" / "report" / name).exists():
            continue
        cpu_of([*CONTEXTCLIFF, "campaign", "new", "wide", "--name", name], folder)
        used, _ = cpu_of([*CONTEXTCLIFF, "profile", "wide", "--campaign", name], folder)
        print(f"campaign {name}: {used:.1f} CPU s, report included", flush=True)
    dagster = cpu_of([sys.executable, "-c", "import dagster"], folder)[0]
    loaded = cpu_of(DEFINITIONS, folder)[0]
    print(f"definitions: {loaded:.2f} CPU s, {dagster:.2f} of it `import dagster`")
    if loaded - dagster > MOST_CPU_S:
        sys.exit(f"Definitions take more than {MOST_CPU_S} CPU s besides `import dagster`.")
    whole, printed = cpu_of([*SCORE, name], folder)
    print(
        f"scores of an unchanged campaign: {printed.strip()} of the {whole:.2f} CPU s of a process"
    )
    event_log(folder / "store" / "dagster_home" / "history" / "runs")


def event_log(runs: Path) -> None:
    """Print the bytes of each asset's largest metadata, and the rows of the largest run."""
    with sqlite3.connect(runs / "index.db") as index:
        sql = "SELECT asset_key, max(length(event)), count(*) FROM event_logs WHERE "
        sql += "dagster_event_type = 'ASSET_MATERIALIZATION' GROUP BY asset_key"
        for key, most, count in index.execute(sql):
            print(f"{'/'.join(json.loads(key)):<28} {count:>6} materializations, {most:>8,} bytes")
    for path in sorted(runs.glob("*-*.db"), key=lambda path: path.stat().st_size)[-1:]:
        with sqlite3.connect(path) as run:
            sql = "SELECT dagster_event_type, partition IS NULL, count(*) FROM event_logs "
            rows = list(run.execute(f"{sql} GROUP BY 1, 2"))
        of_cells = [n for _, alone, n in rows if not alone]
        kinds = Counter({kind or "log": n for kind, alone, n in rows if alone})
        print(f"largest run: {sum(of_cells):,} rows of partitions, {sum(kinds.values()):,} others")
        print("  " + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common(6)))


if __name__ == "__main__":
    main()
