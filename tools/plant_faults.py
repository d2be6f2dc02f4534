"""Plant faults in the product, one at a time, and see the tests fail: ``make plant-faults``.

Each file of ``tools/planted_faults`` is a patch under a sentence on what a user would suffer and,
where it is known, the cheapest test that catches the fault. The patches go into a clone of the last
commit. A fault that no test notices, or whose patch no longer applies, is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = Path(__file__).with_name("planted_faults")
TESTS_FAILED = 1  # pytest's exit code; others stand for tests that could not be run


def tests_with(patch: Path, clone: Path) -> tuple[int, int]:
    """Return pytest's exit codes without and with the fault, on the test that the patch names.

    A patch that names no test is judged by all that `.ci/run` runs, but not without the fault.

    Raises:
        subprocess.CalledProcessError: the patch does not apply.
    """
    named = patch.read_text("utf-8").partition("Caught by: ")[2].partition("\n")[0]
    tests = ["--tier=commit", named or "--numprocesses=4"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(clone)}

    def ended() -> int:
        return subprocess.run(command, cwd=clone, env=environment, capture_output=True).returncode

    before = ended() if named else 0
    subprocess.run(["git", "apply", str(patch)], cwd=clone, check=True)
    after = ended()
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=clone, check=True)
    return before, after


def main(names: list[str]) -> int:
    """Plant the faults of these names, or all; the exit code."""
    patches = [FAULTS / f"{name}.patch" for name in names] or sorted(FAULTS.glob("*.patch"))
    if unknown := [patch.stem for patch in patches if not patch.is_file()]:
        print(f"{FAULTS} has no fault {', '.join(unknown)}; see its files.", file=sys.stderr)
        return 2
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for patch in patches:
            try:
                caught = tests_with(patch, clone) == (0, TESTS_FAILED)
                verdict = "caught" if caught else "MISSED"
            except subprocess.CalledProcessError:
                caught, verdict = False, "DOES NOT APPLY"
            missed += not caught
            print(f"{verdict:<15} {patch.stem}", flush=True)
    print(f"{len(patches) - missed} of {len(patches)} planted faults are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
