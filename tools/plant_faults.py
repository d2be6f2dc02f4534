"""Plant faults in the product one at a time and check that tests fail: ``make plant-faults``.

Each file of ``tools/planted_faults`` is a patch, preceded by a sentence on its effect on users and
by the cheapest test that catches it. Patches are applied to a clone of the last commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = Path(__file__).with_name("planted_faults")
TESTS_FAILED = 1  # pytest's exit code; other codes mean that the tests could not run
CAUGHT = "caught"


def caught_by(patch: Path) -> str:
    """Return the id of the test that catches the fault, from the patch; empty if it has none."""
    return patch.read_text("utf-8").partition("Caught by: ")[2].partition("\n")[0]


def applies(patch: Path, checkout: Path) -> bool:
    check = ["git", "apply", "--check", str(patch)]
    return not subprocess.run(check, cwd=checkout, capture_output=True).returncode


def verdict_on(patch: Path, clone: Path) -> tuple[str, str]:
    """Return the verdict on the fault (`CAUGHT` if all is well) and the end of pytest's output."""
    if not applies(patch, clone):
        return "DOES NOT APPLY", ""
    subprocess.run(["git", "apply", str(patch)], cwd=clone, check=True)
    code, output = _tested([caught_by(patch)], clone)
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=clone, check=True)
    return {0: "MISSED", TESTS_FAILED: CAUGHT}.get(code, "NOT TESTED"), output


def _tested(tests: Sequence[str], clone: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(clone)}
    process = subprocess.run(
        command,
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return process.returncode, "\n".join(process.stdout.splitlines()[-15:])


def main(names: list[str]) -> int:
    """Plant the named faults, or all of them; return the exit code."""
    patches = [FAULTS / f"{name}.patch" for name in names] or sorted(FAULTS.glob("*.patch"))
    if unknown := [patch.stem for patch in patches if not patch.is_file()]:
        print(f"{FAULTS} has no fault {', '.join(unknown)}; see its files.", file=sys.stderr)
        return 2
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        code, output = _tested([*map(caught_by, patches)], clone)
        if code:
            print(output, "The tests fail without a fault: fix them first.", sep="\n")
            return 1
        for patch in patches:
            verdict, output = verdict_on(patch, clone)
            missed += verdict != CAUGHT
            print(f"{verdict:<15} {patch.stem}", flush=True)
            if verdict != CAUGHT:
                print(output, flush=True)
    print(f"{len(patches) - missed} of {len(patches)} planted faults are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
