"""What must be true of results whatever the models are: told by weights and lengths alone.

The scripts in benchmarks/ make the claims and exit 1 where one fails; these are smaller runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.paths import CHECKOUT

BENCHMARKS = CHECKOUT / "benchmarks"


def claim(script: str, store: Path, *options: str) -> str:
    """What a benchmark prints of `quick` as measured in ``store``; fails where its claim does."""
    study = ("--study", "quick", "--store", str(store))
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *study, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(600)
def test_swapping_the_two_weight_files_swaps_the_caps(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    output = claim("swapped_weights.py", copy_of_quick(tmp_path_factory))
    caps = [line.split()[1:3] for line in output.splitlines() if line.startswith("reference-")]
    (short, short_renamed), (long, long_renamed) = caps
    assert (short_renamed, long_renamed) == (short, long)
    assert 0 < int(short) < int(long)


@pytest.mark.timeout(600)
def test_shuffled_lengths_of_a_finished_study_show_no_cliff(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    output = claim("shuffled_lengths.py", copy_of_quick(tmp_path_factory), "--shuffles", "8")
    assert output.count("as measured cliff") == 2
