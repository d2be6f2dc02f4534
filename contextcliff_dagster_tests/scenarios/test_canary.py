"""A server that is slow beyond a length, over HTTP and through the whole chain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextcliff_dagster.inference.telemetry import LoopLag
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.scenarios.test_truncation import point_at
from contextcliff_dagster_tests.support.records.calls import unreliable_server
from contextcliff_dagster_tests.support.tiny_study import TINY, prompts_of

pytestmark = pytest.mark.usefixtures("unrecorded")

FACTOR = 3.0


@pytest.fixture(autouse=True)
def _own_loop_is_never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine calls that our own loop held up are left out, and no claim is left."""
    monkeypatch.setattr(LoopLag, "worst_ms_since", lambda self, since: 0.0)


@pytest.fixture
def wider(tmp_path: Path) -> Study:
    """Four bins of twelve: enough calls for a law of time over length."""
    path = tmp_path / "wider.yaml"
    text = TINY.replace("count: 3", "count: 4").replace("samples_per_bin: 4", "samples_per_bin: 12")
    path.write_text(text.replace("name: tiny", "name: wider"))
    return load_study(path)


def shortest_prompt(study: Study, bin: str) -> int:
    """Tokens of it, without the server's template."""
    count = open_tokenizer("reference").count
    return min(sum(map(count, prompt.contents())) for prompt in prompts_of(study, bin).values())


def test_slow_calls_beyond_a_length_are_seen_in_their_bin_and_no_other(
    wider: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = "    tokenizer: reference\n    concurrency: 1\n"
    beyond = shortest_prompt(wider, "b03") - 1
    served = {"ms_per_token": 0.3, "slow_beyond": beyond, "slow_factor": FACTOR}
    with unreliable_server(delay_ms=0.5, **served) as url:
        point_at(tmp_path, url, monkeypatch, more=ours)
        done = profile_study(wider, models=["served"], store=store)
    folder = store.profile_dir("wider", done.campaign, "served")
    metrics = json.loads((folder / "metrics.json").read_text())
    found = metrics["latency"]["ttft"]
    assert found["calls"] == 48
    assert not any(found["excluded"].values())
    *normal, slow = [row["latency_excess"]["ttft"] for row in metrics["bins"]]
    assert slow["median"] == pytest.approx(FACTOR - 1, abs=0.3)
    assert slow["ci_low"] > 0.5
    assert all(row["median"] < 0.3 for row in normal)
    (warning,) = [w for w in done.cliffs[0].warnings if "time to first token is higher" in w]
    last = metrics["bins"][-2]["max_tokens"]
    assert metrics["slowdown"]["ttft"]["slowdown"]["last_normal_tokens"] == last
    assert f"Beyond {last:,} tokens" in warning
    report = done.report.html.read_text(encoding="utf-8")
    assert "Slower than expected" in report
    assert "limited by latency" in report or done.cliffs[0].safe_cap_tokens is None
