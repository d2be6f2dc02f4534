"""What must be true of results whatever the models are: told by weights and lengths alone.

The scripts in benchmarks/ make the claims and exit 1 where one fails; these are smaller runs.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from contextcliff_dagster_tests.support.paths import CHECKOUT

BENCHMARKS = CHECKOUT / "benchmarks"


def claim(script: str, *options: str) -> str:
    """What a benchmark prints; fails where its claim does."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_swapping_the_two_weight_files_swaps_the_caps() -> None:
    output = claim("swapped_weights.py", "--study", "quick", "--samples-per-bin", "6")
    caps = [line.split()[1:3] for line in output.splitlines() if line.startswith("reference-")]
    (short, short_renamed), (long, long_renamed) = caps
    assert (short_renamed, long_renamed) == (short, long)
    assert 0 < int(short) < int(long)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_shuffled_lengths_of_a_finished_study_show_no_cliff() -> None:
    output = claim("shuffled_lengths.py", "--study", "quick", "--shuffles", "8")
    assert output.count("as measured cliff") == 2
