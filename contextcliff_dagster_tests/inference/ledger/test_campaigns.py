"""Campaigns: when one begins, what it measures again, and who must stay the same in it."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import BudgetError, EngineError
from contextcliff_dagster.inference.ledger.campaigns import (
    current_campaign,
    list_campaigns,
    new_campaign,
    record_identity,
    recorded_identity,
)
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.records.calls import (
    faulty_server,
    openai_entry,
    reference_entry,
    reference_server,
)
from contextcliff_dagster_tests.support.records.measured import PRICE, run


class NoServer:
    """An engine whose endpoint nobody serves."""

    async def start(self) -> None:
        raise EngineError("Nobody answers at http://127.0.0.1:9/v1.")

    async def stop(self) -> None: ...


def test_a_campaign_is_named_by_its_day_and_begins_with_the_first_call(ledger: Ledger) -> None:
    name = current_campaign(ledger, "s", today=date(2026, 11, 21))
    assert name == "2026-11-21"
    assert list_campaigns(ledger) == [], "asking for a name begins nothing"
    run(ledger, n=1, campaign=name)
    assert [(c.study, c.name) for c in list_campaigns(ledger)] == [("s", name)]
    assert current_campaign(ledger, "s", today=date(2026, 11, 22)) == name


def test_two_campaigns_of_one_name_are_two(ledger: Ledger) -> None:
    names = [new_campaign(ledger, "study", name="sentinel-1") for _ in range(3)]
    assert names == ["sentinel-1", "sentinel-1-2", "sentinel-1-3"]
    assert {c.name for c in list_campaigns(ledger, "study")} == set(names)


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        (EngineError, {"engine": NoServer()}),
        (BudgetError, {"entry": reference_entry(price=PRICE), "budget": Budget(usd=1e-6)}),
        (BudgetError, {"budget": Budget(calls=0)}),
    ],
)
def test_a_run_that_fails_before_its_first_call_begins_no_campaign(
    fault: type[Exception], how: dict[str, Any], sqlite_ledger: Ledger
) -> None:
    with pytest.raises(fault):
        run(sqlite_ledger, campaign="2026-11-21", **how)
    assert list_campaigns(sqlite_ledger) == []
    assert current_campaign(sqlite_ledger, "s", today=date(2026, 11, 22)) == "2026-11-22"
    assert run(sqlite_ledger, campaign="2026-11-22").sent == 18


def test_a_campaign_of_calls_that_another_study_paid_for_has_begun(ledger: Ledger) -> None:
    run(ledger, study="other")
    assert run(ledger).sent == 0
    assert [(c.study, c.name) for c in list_campaigns(ledger, "s")] == [("s", "c")]


def test_a_new_campaign_measures_again_and_a_resumed_one_does_not(ledger: Ledger) -> None:
    first = current_campaign(ledger, "s")
    assert current_campaign(ledger, "s") == first
    assert run(ledger, campaign=first).sent == 18
    second = new_campaign(ledger, "s")
    assert second == f"{first}-2"
    assert current_campaign(ledger, "s") == second
    assert run(ledger, campaign=second).sent == 18
    assert run(ledger, campaign=first).sent == 0
    assert [campaign.name for campaign in list_campaigns(ledger, "s")] == [first, second]
    assert list_campaigns(ledger, "other") == []


def test_changed_weights_under_an_old_name_are_refused_within_the_campaign(
    sqlite_ledger: Ledger, tmp_path: Path
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(weights_path("reference-short"), folder)
    run(sqlite_ledger, reference_entry(weights=str(folder)), n=2)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    for n in (2, 6):  # finished or not
        with pytest.raises(EngineError, match=r"weights_sha256: .* -> .*campaign new s"):
            run(sqlite_ledger, reference_entry(weights=str(folder)), n=n)
    assert run(sqlite_ledger, reference_entry(weights=str(folder)), n=2, campaign="next").sent == 6


def test_a_setting_corrected_before_anything_was_measured_is_no_change(ledger: Ledger) -> None:
    record_identity(ledger, "s", "c", "m", Identity({"dtype": "float16"}))
    record_identity(ledger, "s", "c", "m", Identity({"dtype": "float32"}))
    recorded = recorded_identity(ledger, "s", "c", "m")
    assert recorded is not None
    assert recorded.fields == {"dtype": "float32"}


def test_prices_and_addresses_with_a_revision_are_not_identity(sqlite_ledger: Ledger) -> None:
    price = {"input_usd_per_mtok": 5, "output_usd_per_mtok": 5}
    with faulty_server(["ok"]) as url:
        run(sqlite_ledger, openai_entry(url, revision="r1"), n=2)
    with faulty_server(["ok"]) as url:
        summary = run(sqlite_ledger, openai_entry(url, revision="r1", price=price), n=6)
    assert (summary.cached, summary.sent) == (6, 12)


def test_weights_that_change_behind_an_address_are_noticed_where_the_server_tells(
    sqlite_ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(weights_path("reference-short"), folder)
    (tmp_path / "models.yaml").write_text("models:\n  w: {engine: reference, weights: weights}\n")
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    with reference_server("w") as url:
        assert run(sqlite_ledger, openai_entry(url, model_id="w", revision="r1"), n=1).sent == 3
    recorded = recorded_identity(sqlite_ledger, "s", "c", "remote")
    assert recorded is not None
    assert recorded.fields["server_max_model_len"] == 8192
    assert recorded.window_tokens == 8192
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    changed = pytest.raises(EngineError, match="server_meta")
    with reference_server("w") as url, changed:
        run(sqlite_ledger, openai_entry(url, model_id="w", revision="r1"), n=2)
