"""Two models that are leased a device each of two are measured at once: their calls overlap."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.defs.campaign_runs.test_one_report import Location

# Two processes that import Dagster; those under the daemon are `scenarios.test_side_by_side`.
pytestmark = pytest.mark.timeout(900)

Span = tuple[datetime, datetime]


def spans(store: Store) -> dict[str, list[Span]]:
    """Model -> from when to when each of its calls took, as the ledger has them."""
    found: dict[str, list[Span]] = {}
    with Ledger.open(store.ledger) as ledger:
        for model, *span in ledger.read("SELECT model, started_at, ended_at FROM attempts"):
            began, ended = map(datetime.fromisoformat, span)
            found.setdefault(model, []).append((began, ended))
    return found


def overlap(ones: list[Span], others: list[Span]) -> int:
    """How many pairs of calls were in flight at the same moment."""
    return sum(a[0] < b[1] and b[0] < a[1] for a in ones for b in others)


@pytest.mark.usefixtures("prepared")
def test_calls_of_two_models_on_two_devices_overlap_in_time(
    weekly: Study,
    store: Store,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = weekly.folder / "tiny.yaml"
    file.write_text(f'{file.read_text()}schedule: {{cron: "0 3 * * 1"}}\n')
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(file.parent))
    monkeypatch.delenv("DAGSTER_HOME")
    requests = Location(weekly, store, instance).tick()
    assert len(requests) == 2
    met = tmp_path / "met"
    met.mkdir()
    module = "contextcliff_dagster_tests.support.device_run"
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", module, str(met), json.dumps(weekly.models)),
                json.dumps(
                    {
                        "run_config": request.run_config,
                        "tags": request.tags,
                        "assets": [key.path for key in request.asset_selection or ()],
                    }
                ),
            ]
        )
        for request in requests
    ]
    assert [process.wait(240) for process in processes] == [0, 0]
    assert {path.name for path in met.iterdir()} == {*weekly.models}
    assert {path.read_text() for path in met.iterdir()} == {"left", "right"}
    calls = spans(store)
    assert {model: len(own) for model, own in calls.items()} == dict.fromkeys(weekly.models, 12)
    assert overlap(*calls.values()) > 0
