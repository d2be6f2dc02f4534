"""What a call costs: the entry's own price, else that of a kept-up table, and how old it is."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from genai_prices import Usage, calc_price

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.inference import spending
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.models.models_file import ModelEntry, Price
from contextcliff_dagster.inference.spending import Budget, price_notes, priced, require_price
from contextcliff_dagster_tests.support.records.calls import LedgerSample, openai_entry, plan_of

SAMPLE = LedgerSample(1, 8, max_tokens=200)
PRICE = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}
OPENAI = "https://api.openai.com/v1"


def listed(url: str, model_id: str) -> Price:
    price = priced(openai_entry(url, model_id=model_id)).price
    assert price is not None
    return price


@pytest.mark.parametrize(
    ("url", "model_id", "cached_is_cheaper"),
    [
        (OPENAI, "gpt-4o-mini-2024-07-18", True),
        (OPENAI, "gpt-4.1", True),
        ("https://openrouter.ai/api/v1", "openai/gpt-4o-mini", True),
        ("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile", False),
        ("https://api.together.xyz/v1", "meta-llama/Llama-3.3-70B-Instruct-Turbo", False),
    ],
)
def test_a_call_costs_what_the_table_says_of_its_endpoint(
    url: str, model_id: str, cached_is_cheaper: bool
) -> None:
    price = listed(url, model_id)
    for read_again in (0, 40_000):
        usage = Usage(input_tokens=100_000, cache_read_tokens=read_again or None, output_tokens=500)
        theirs = calc_price(usage, model_id, provider_api_url=url).total_price
        ours = price.cost_usd(100_000, 500, read_again)
        assert ours == pytest.approx(float(theirs)), read_again
    cheaper = price.cost_usd(100_000, 500, 40_000) < price.cost_usd(100_000, 500)
    assert cheaper == cached_is_cheaper
    assert (price.source or "").startswith("genai-prices ")


def test_a_price_in_steps_is_taken_at_its_dearest() -> None:
    price = listed("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro")
    assert (price.input_usd_per_mtok, price.output_usd_per_mtok) == (2.5, 15)


def test_a_price_that_is_lower_at_night_is_taken_at_its_dearest() -> None:
    url = "https://api.deepseek.com/v1"
    usage, hours = Usage(input_tokens=10**6, output_tokens=0), range(24)
    by_hour = {
        float(
            calc_price(
                usage,
                "deepseek-chat",
                provider_api_url=url,
                genai_request_timestamp=datetime.now(UTC).replace(hour=hour, minute=15),
            ).total_price
        )
        for hour in hours
    }
    assert len(by_hour) > 1, "the table has no such price any more: take another example"
    assert listed(url, "deepseek-chat").input_usd_per_mtok == max(by_hour)


def test_an_entry_knows_better_than_the_table() -> None:
    own = openai_entry(OPENAI, model_id="gpt-4o-mini", price=PRICE)
    assert priced(own) is own


@pytest.mark.parametrize(
    "entry",
    [
        openai_entry("http://127.0.0.1:8000/v1", model_id="gpt-4o-mini-2024-07-18"),
        openai_entry("https://models.example.com/v1", model_id="gpt-4o-mini-2024-07-18"),
        openai_entry(OPENAI, model_id="no-such-model"),
        openai_entry("${NO_SUCH_VARIABLE}", model_id="gpt-4o-mini"),
    ],
)
def test_a_server_of_ones_own_gets_no_price_by_the_name_of_its_model(entry: ModelEntry) -> None:
    assert priced(entry).price is None
    with pytest.raises(BudgetError, match=r"has no price.*models\.yaml"):
        require_price(entry, Budget(usd=1))


def test_the_table_makes_a_budget_possible() -> None:
    entry = priced(openai_entry(OPENAI, model_id="gpt-4o-mini"))
    require_price(entry, Budget(usd=1))


def test_an_address_with_secrets_is_looked_up_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(spending, "_listed", lambda model_id, url: asked.append(url))
    priced(openai_entry("https://me:hidden1234@api.openai.com/v1?key=hidden1234"))
    assert asked == [OPENAI]


def test_a_price_that_is_old_is_worth_a_note() -> None:
    entry = openai_entry("http://127.0.0.1:9/v1", price={**PRICE, "as_of": "2024-07-18"})
    today = date(2024, 7, 18)
    assert price_notes(entry, today) == []
    assert price_notes(entry, date(2025, 1, 14)) == []
    assert "181 days ago" in price_notes(entry, date(2025, 1, 15))[0]
    told = estimate([(None, plan_of(SAMPLE, 8, bins=["b00"]))], [entry], None)
    assert "2024-07-18" in told.notes[0]
    assert told.to_dict()["notes"] == list(told.notes)
    unknown = openai_entry("http://127.0.0.1:9/v1", price={**PRICE, "as_of": "last spring"})
    assert "not a date" in price_notes(unknown)[0]
    assert price_notes(openai_entry("http://127.0.0.1:9/v1", price=PRICE)) == []


def test_a_table_that_is_old_is_worth_a_note() -> None:
    entry = priced(openai_entry(OPENAI, model_id="gpt-4o-mini"))
    assert entry.price is not None
    newest = date.fromisoformat(entry.price.as_of or "")
    assert date(2026, 1, 1) <= newest <= date.today()
    assert price_notes(entry, newest) == []
    later = newest.replace(year=newest.year + 1)
    (note,) = price_notes(entry, later)
    assert str(newest) in note
    assert "-m pip install --upgrade genai-prices`, or" in note
