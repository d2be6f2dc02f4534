"""From a fresh clone to the report, as a newcomer has it: cold caches, then again, then rebuilt.

    python benchmarks/fresh_clone.py [--keep FOLDER]

Clones the committed HEAD into a temporary folder and types `make profile` there, with empty
package caches. Then a second time; then after deleting profiles, report and Parquet. Prints
seconds, and the calls that the ledger has recorded after each step: the last two must add none.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GOALS = {"profile": 240.0, "measuring": 90.0, "again": 10.0}


def timed(*command: str, cwd: Path, caches: Path) -> tuple[float, str]:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("CONTEXTCLIFF_", "DAGSTER_"))},
        "PIP_CACHE_DIR": str(caches / "pip"),
        "UV_CACHE_DIR": str(caches / "uv"),
    }
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.monotonic() - started, done.stdout + done.stderr


def calls(store: Path) -> int:
    with sqlite3.connect(f"file:{store / 'state.db'}?mode=ro", uri=True) as ledger:
        count: int = ledger.execute("SELECT count(*) FROM attempts").fetchone()[0]
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="clone into this folder and leave it there")
    keep = parser.parse_args().keep
    folder = Path(tempfile.mkdtemp(prefix="contextcliff-fresh-"))
    clone = keep or folder / "clone"
    try:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        caches = folder / "caches"
        store = clone / "data" / "store"

        whole, said = timed("make", "profile", cwd=clone, caches=caches)
        installing = sum(map(float, re.findall(r"^(?:Ready|Installed) in (\d+) s", said, re.M)))
        measuring = sum(map(float, re.findall(r"^Measured and reported in (\d+) s", said, re.M)))
        made = calls(store)
        again, _ = timed("make", "profile", cwd=clone, caches=caches)
        made_again = calls(store)
        for name in ("profiles", "report", "eval_records", "predictions"):
            for path in store.glob(f"*/{name}"):
                shutil.rmtree(path)
        rebuilt, _ = timed("make", "profile", cwd=clone, caches=caches)
        made_rebuilt = calls(store)
        pictures = list(store.glob("*/report/*/report.png"))

        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"fresh clone to report   {whole:6.1f} s   (at most {GOALS['profile']:.0f})")
        print(f"  installing            {installing:6.0f} s")
        print(f"  measuring, reporting  {measuring:6.0f} s   (at most {GOALS['measuring']:.0f})")
        print(f"second make profile     {again:6.1f} s   (at most {GOALS['again']:.0f})")
        print(f"rebuilt from the ledger {rebuilt:6.1f} s")
        print(f"calls made: {made}, then {made_again - made}, then {made_rebuilt - made_again}")
        print(f"pictures: {len(pictures)}")
        if not (made == made_again == made_rebuilt) or not pictures:
            raise SystemExit("FAILED: calls were made again, or the report was not rebuilt.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
