"""Check that swapping two models' weights swaps their caps: results follow weights, not names.

    python benchmarks/swapped_weights.py [--study reference] [--seed N] [--store DIR]

Profiles a study of the two reference models twice, each time in a store of its own: once as
shipped (with --store: reuses what is measured there), once with a models.yaml in which
`reference-short` points at the folder of the long model's weights and the other way round. Sample,
prompts and weights are the same and temperature is 0, so everything that depends on the scores must
be equal to the last digit. Exits with 1 if it is not, or if the two models' caps do not differ, so
that the check shows nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHORT, LONG = "reference-short", "reference-long"
SWAPPED = {SHORT: LONG, LONG: SHORT}
DECIDED = ("verdict", "safe_cap_tokens", "caps_by_tolerance", "cliff", "baseline", "zones", "n")
"""Fields of cliffs.json that depend on the scores alone, not on times or identities."""


def models_yaml(folder: Path) -> Path:
    """Write entries under the shipped names, each with the other model's weights."""
    weights = files("contextcliff_dagster") / "reference" / "weights"
    entries = {
        name: {
            "engine": "reference",
            "weights": str(weights / other),
            "tokenizer": "reference",
            "window_tokens": 8192,
            "dtype": "float32",
            "concurrency": 1,
        }
        for name, other in SWAPPED.items()
    }
    path = folder / "models.yaml"
    path.write_text(json.dumps({"models": entries}, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def profile(options: Sequence[str], store: Path, models: Path | None) -> dict[str, dict[str, Any]]:
    """Return model name -> cliffs.json, measured through the command line."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CONTEXTCLIFF_", "DAGSTER_"))}
    if models is not None:
        env["CONTEXTCLIFF_MODELS"] = str(models)
    command = (sys.executable, "-m", "contextcliff_dagster.cli", "profile", *options)
    fixed = ("--model", SHORT, "--model", LONG, "--store", str(store), "--yes", "--json")
    done = subprocess.run(
        [*command, *fixed], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return {c["model"]: c for c in json.loads(done.stdout)["cliffs"]}


def differences(shipped: dict[str, Any], swapped: dict[str, Any]) -> list[str]:
    """Return the fields that differ between results of the same weights under two names."""
    differing = [key for key in DECIDED if shipped[key] != swapped[key]]
    means = [[row["mean"] for row in one["bins"]] for one in (shipped, swapped)]
    return differing + (["bins"] if means[0] != means[1] else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--study", default="reference")
    parser.add_argument("--seed", help="draw another sample")
    parser.add_argument("--store", type=Path, help="where the study is, or is to be, measured")
    given = parser.parse_args()
    options = [given.study, *(("--seed", given.seed) if given.seed else ())]
    with tempfile.TemporaryDirectory(prefix="contextcliff-swapped-") as name:
        folder = Path(name)
        shipped = profile(options, given.store or folder / "shipped", None)
        swapped = profile(options, folder / "swapped", models_yaml(folder))
    print(f"{'WEIGHTS':<16} {'CAP AS SHIPPED':>15} {'CAP UNDER THE OTHER NAME':>25}  DIFFERENT")
    failed = shipped[SHORT]["safe_cap_tokens"] == shipped[LONG]["safe_cap_tokens"]
    for weights, other in SWAPPED.items():
        wrong = differences(shipped[weights], swapped[other])
        caps = [c["safe_cap_tokens"] for c in (shipped[weights], swapped[other])]
        print(f"{weights:<16} {caps[0]!s:>15} {caps[1]!s:>25}  {', '.join(wrong) or 'nothing'}")
        failed |= bool(wrong)
    if failed:
        print("The caps do not swap with the weights.")
        sys.exit(1)
    print("The caps swap with the weights.")


if __name__ == "__main__":
    main()
