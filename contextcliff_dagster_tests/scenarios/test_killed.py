"""A killed process: what it had finished is kept, in the store and in Dagster's own records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg

from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.child_processes import wait_until

PROFILE = """
import sys, pytest
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.studies import find_study
from contextcliff_dagster_tests.support.held_calls import hold_until_halted
from contextcliff_dagster_tests.support.tiny_study import prompts_of

study = find_study(sys.argv[1])
first = prompts_of(study, "b00")
hold_until_halted(pytest.MonkeyPatch(), lambda model, prompt: prompt.hash not in first)
profile_study(study)
"""


def test_kill_dash_nine_keeps_finished_bins_and_their_materializations(
    study: Study, store: Store, tmp_path: Path, dagster_home: Path
) -> None:
    # Made before: two first uses of one SQLite home at once corrupt it.
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.get_runs_count()
        instance.all_asset_keys()
    path = tmp_path / "studies" / "tiny.yaml"
    text = path.read_text().replace("samples_per_bin: 4", "samples_per_bin: 15")
    path.write_text(text + "calls: {order: by_length}\n")
    process = subprocess.Popen([sys.executable, "-c", PROFILE, str(path)], env=os.environ.copy())

    def kept() -> set[str]:
        with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
            made = instance.get_materialized_partitions(dg.AssetKey(["tiny", "predictions"]))
            return {key.partition("|")[2] for key in made}

    # The bin's event follows its file; both must be out before the kill is a test of them.
    wait_until(lambda: kept() or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = {p.parent.name for p in store.root.rglob("predictions.parquet")}
    assert finished == {"bin=b00"}
    assert kept() == {"reference-short.b00"}

    resumed = profile_study(load_study(path))
    assert sum(s.sent for s in resumed.calls.values()) == 90 - 15
