"""A policy lets through what was certified, for whom it was certified, as long as it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.policy import (
    AboveCapError,
    ExpiredPolicyError,
    ForeignPolicyError,
    PolicyError,
    SafeContext,
    as_json,
    guard,
    load_policies,
)
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, step
from contextcliff_dagster_tests.support.records.profiles import cliffs_of, schema

TODAY = datetime.now(UTC).date()
POLICY = SafeContext(
    model="m",
    identity="id-1",
    task="lookup",
    tokenizer="reference",
    tokenizer_sha256=None,
    safe_cap_tokens=1_000,
    cap_prompt_tokens=1_200,
    tolerance=0.3,
    confidence=0.95,
    n=200,
    n_documents=200,
    date=TODAY.isoformat(),
    expiry=(TODAY + timedelta(days=90)).isoformat(),
    study="s",
    campaign="c",
    score="em",
)


@given(st.integers(0, 10_000), st.integers(1, 5_000))
def test_exactly_what_is_not_above_the_cap_passes(tokens: int, cap: int) -> None:
    policy = SafeContext(**{**POLICY.to_dict(), "safe_cap_tokens": cap})
    if tokens <= cap:
        policy.check(tokens)
    else:
        with pytest.raises(AboveCapError, match=f"{tokens:,} tokens"):
            policy.check(tokens)


def test_the_prompt_has_a_cap_of_its_own() -> None:
    POLICY.check(prompt_tokens=1_200)
    with pytest.raises(AboveCapError, match="prompt of 1,201"):
        POLICY.check(1_000, prompt_tokens=1_201)


def test_an_expired_policy_lets_nothing_through() -> None:
    last = date.fromisoformat(POLICY.expiry)
    POLICY.check(1, today=last)
    with pytest.raises(ExpiredPolicyError, match="expired on"):
        POLICY.check(1, today=last + timedelta(days=1))


@pytest.mark.parametrize("foreign", ["model", "identity", "tokenizer"])
def test_a_policy_for_another_lets_nothing_through(foreign: str) -> None:
    own: dict[str, Any] = {"model": "m", "identity": "id-1", "tokenizer": "reference"}
    POLICY.check(1, **own)
    with pytest.raises(ForeignPolicyError, match=foreign):
        POLICY.check(1, **{**own, foreign: "another"})


def test_an_unknown_identity_is_not_taken_for_the_right_one() -> None:
    unknown = SafeContext(**{**POLICY.to_dict(), "identity": None})
    with pytest.raises(ForeignPolicyError, match="identity unknown"):
        unknown.check(1, identity="id-1")


def test_nothing_counted_is_nothing_checked() -> None:
    with pytest.raises(PolicyError, match="tokens"):
        POLICY.check()


def test_a_result_becomes_a_policy_by_the_schema_and_comes_back(tmp_path: Path) -> None:
    cliffs = cliffs_of(plant(step(1_500, 0.95, 0.2), 3))
    cliffs.provenance["times"] = {"measured_to": datetime.now(UTC).isoformat()}
    made = SafeContext.from_cliffs(cliffs, expires=30)
    assert made.safe_cap_tokens == cliffs.safe_cap_tokens
    assert date.fromisoformat(made.expiry) - date.fromisoformat(made.date) == timedelta(days=30)
    path = tmp_path / "policy.json"
    other = SafeContext(**{**POLICY.to_dict(), "model": "other"})
    for found in ([made], [made, other]):
        path.write_text(json.dumps(as_json(found)))
        schema("safe-context").validate(json.loads(path.read_text()))
        assert load_policies(path) == found
    assert SafeContext.load(path, "other") == other == guard(path, 1_000, model="other")


def test_no_cap_no_policy() -> None:
    cliffs = cliffs_of(plant(step(1_500, 0.04, 0.02), 3))
    assert cliffs.verdict == "floor"
    with pytest.raises(PolicyError, match="floor") as caught:
        SafeContext.from_cliffs(cliffs)
    assert cliffs.safe_cap_reason in str(caught.value)


def test_the_end_of_the_baseline_is_a_policy_only_where_it_is_asked_for() -> None:
    results = (cliffs_of(plant(flat(0.55), seed, per_bin=5)) for seed in range(20))
    cliffs = next(one for one in results if one.cap_basis == "baseline")
    assert cliffs.safe_cap_tokens is None
    assert cliffs.baseline_cap_tokens == cliffs.baseline.to_tokens
    words = f"Nothing longer than the baseline's own {cliffs.baseline_cap_tokens:,} tokens is shown"
    with pytest.raises(PolicyError, match=words):
        SafeContext.from_cliffs(cliffs)
    policy = SafeContext.from_cliffs(cliffs, allow_baseline=True, expires=date(2999, 1, 1))
    assert (policy.safe_cap_tokens, policy.note) == (
        cliffs.baseline_cap_tokens,
        cliffs.safe_cap_reason,
    )
    floor = cliffs_of(plant(step(1_500, 0.04, 0.02), 3))
    assert (floor.cap_basis, floor.baseline_cap_tokens) == (None, None)
    with pytest.raises(PolicyError, match="floor"):
        SafeContext.from_cliffs(floor, allow_baseline=True)


def test_a_measurement_too_old_gives_no_policy() -> None:
    cliffs = cliffs_of(plant(step(1_500, 0.95, 0.2), 3))
    cliffs.provenance["times"] = {"measured_to": "2020-01-01T00:00:00+00:00"}
    with pytest.raises(PolicyError, match=r"2020-03-31.*measure it again"):
        SafeContext.from_cliffs(cliffs)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ("[]", "no policy"),
        ('"cap"', "not a contextcliff policy"),
        ("{}", "not a contextcliff policy"),
        (json.dumps({**POLICY.to_dict(), "schema_version": "2.0"}), "upgrade"),
        (json.dumps({**POLICY.to_dict(), "expiry": "soon"}), "damaged"),
        (json.dumps({**POLICY.to_dict(), "safe_cap_tokens": "1000"}), "damaged"),
        (json.dumps({"schema_version": "1.0", "model": "m"}), "damaged"),
    ],
)
def test_what_is_no_policy_lets_nothing_through(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(PolicyError, match=word):
        guard(path, 1)
    with pytest.raises(PolicyError, match=r"nowhere\.json"):
        guard(tmp_path / "nowhere.json", 1)


def test_text_is_counted_with_the_policys_own_tokenizer() -> None:
    text = "SKU-085: 531036\n"
    own = POLICY.count(text)
    assert own > 1
    with pytest.raises(ForeignPolicyError, match="tiktoken:o200k_base"):
        SafeContext(**{**POLICY.to_dict(), "tokenizer_sha256": "0" * 64}).count(
            text, "tiktoken:o200k_base"
        )


def test_a_gateway_pays_for_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import contextcliff_dagster.policy; "
        "print([m for m in set(sys.modules) - before if m.partition('.')[0] not in "
        "{*sys.stdlib_module_names, 'contextcliff_dagster'}], "
        "sorted(m for m in sys.modules if m.startswith('contextcliff_dagster.')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == (
        "[] ['contextcliff_dagster.contracts', 'contextcliff_dagster.contracts.errors', "
        "'contextcliff_dagster.contracts.tables', 'contextcliff_dagster.contracts.values', "
        "'contextcliff_dagster.policy', 'contextcliff_dagster.user_files']"
    )
