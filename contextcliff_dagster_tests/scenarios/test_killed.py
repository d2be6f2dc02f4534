"""A killed process: what it had finished is kept, in the store and in Dagster's own records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.defs.run import profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.test_run import records

pytestmark = pytest.mark.slow

PROFILE = (
    "import sys; from contextcliff_dagster.studies import find_study;"
    "from contextcliff_dagster.defs.run import profile_study;"
    "profile_study(find_study(sys.argv[1]))"
)


def test_kill_dash_nine_keeps_finished_bins_and_their_materializations(
    study: Study, store: Store, tmp_path: Path, dagster_home: Path
) -> None:
    # Made before: two first uses of one SQLite home at once corrupt it.
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.get_runs_count()
        instance.all_asset_keys()
    path = tmp_path / "studies" / "tiny.yaml"
    path.write_text(path.read_text().replace("samples_per_bin: 4", "samples_per_bin: 15"))
    process = subprocess.Popen([sys.executable, "-c", PROFILE, str(path)], env=os.environ.copy())
    deadline = time.monotonic() + 120
    while not any(store.root.rglob("predictions.parquet")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # The bin's event follows its file; both must be out before the kill is a test of them.
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = {p.parent.name for p in store.root.rglob("predictions.parquet")}
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        kept = instance.get_materialized_partitions(dg.AssetKey(["tiny", "predictions"]))
    assert finished
    assert len(kept) >= 1

    from contextcliff_dagster.studies import load_study

    whole = load_study(path)
    resumed = profile_study(whole)
    assert sum(s.sent for s in resumed.calls.values()) < 90
    with_kill = records(store, "tiny")

    undisturbed = Store(tmp_path / "undisturbed")
    profile_study(whole, store=undisturbed)
    expected = records(undisturbed, "tiny")
    for row in (*with_kill, *expected):
        row.pop("attempts")  # a call that was in flight when the process died is sent again
    assert with_kill == expected
