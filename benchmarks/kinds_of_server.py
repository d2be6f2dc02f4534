"""Comparison of the cap measured behind servers with different wire formats and reports.

    python benchmarks/kinds_of_server.py [KIND ...]

72 questions on documents of 250 to 5,000 tokens go through `contextcliff profile --data` to one
simulated model, whose score falls at 2,000 tokens, behind each kind of server of
`contextcliff_dagster_tests.support.servers.strange_server`. Prints what came of it as a table: the
cap, the calls without an answer and why, and how many requests a second run of the command sends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contextcliff_dagster_tests.support.records.calls import on_a_thread
from contextcliff_dagster_tests.support.servers.strange_server import (
    KINDS,
    TOKENIZER,
    Kind,
    StrangeServer,
    questions,
)


def measured(kind: Kind, folder: Path) -> tuple[dict[str, Any] | None, list[int]]:
    """Run the command twice; return its result (None if refused) and the requests of each run."""
    server, sent = StrangeServer(kind), []
    table = questions(folder / "q.jsonl")
    with on_a_thread(server.handle) as url:
        model = {"engine": "openai", "model_id": "m", "base_url": url, "revision": "r1"}
        model["tokenizer"] = TOKENIZER
        (folder / "models.yaml").write_text(json.dumps({"models": {"m": model}}))
        command = [sys.executable, "-m", "contextcliff_dagster.cli", "profile", "--yes"]
        for _ in range(2):
            before = server.asked
            subprocess.run(
                [*command, "--data", str(table), "--model", "m"],
                cwd=folder,
                env={**os.environ, "CONTEXTCLIFF_HOME": str(folder / "home")},
                capture_output=True,
                check=False,
            )
            sent.append(server.asked - before)
    found = list(folder.rglob("cliffs.json"))
    return (json.loads(found[0].read_bytes()) if found else None), sent


def main() -> None:
    """Print the table."""
    print("| kind of server | | cap | calls without an answer | requests, again |")
    print("|---|---|--:|---|--:|")
    for group, kinds in KINDS.items():
        for name, kind in kinds.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            with tempfile.TemporaryDirectory() as folder:
                cliffs, (_, again) = measured(kind, Path(folder))
            cap, missing = "refused", ""
            if cliffs is not None:
                cap = f"{cliffs['safe_cap_tokens']:,}" if cliffs["safe_cap_tokens"] else "none"
                lost = [f"{n} {why}" for why, n in cliffs["missing"].items() if n]
                missing = ", ".join(lost)
            print(f"| {name} | {group} | {cap} | {missing} | {again} |", flush=True)


if __name__ == "__main__":
    main()
