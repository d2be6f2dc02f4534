"""The terminal's failure risk report: its layout to the letter, and honest words for every null."""

from __future__ import annotations

from typing import Any

import pytest

from contextcliff_dagster.contracts.results import ResultError
from contextcliff_dagster.reporting.terminal import comparison_line, control_lines, risk_report
from contextcliff_dagster_tests.support.records.reports import (
    control_of,
    result_of,
    results_of,
    sample,
    sample_pair,
)

GOLDEN = """\
reference-short | task lookup | 200 examples over 200 documents of 60 to 6,314 tokens | \
campaign 2026-11-21

FAILURE RISK REPORT
-------------------
Max Technical Context: 8,192 tokens
Safe Cap:              382 tokens
Critical Threshold:    575 tokens (7.0% of max), the midpoint of the drop [95% interval 477 to 701]

ZONES:
[OK] Stable Region:      0 - 382 tokens (Mean EM: 0.94; baseline 0.98, 0.92 to 1.00, n = 64)
[!!] Transition Zone:    382 - 977 tokens (Mean EM: 0.42)
[XX] Degraded Region:    > 977 tokens (Score down 96.1% [89.1% to 100.0%])

RECOMMENDATION:
Hard cap inference context at 382 tokens.
That is the document alone; as a prompt of this model it is 396 tokens.
The midpoint of the drop is at 7.0% of the window."""


def lines_of(**changes: Any) -> list[str]:
    cliffs, _ = sample()
    cliffs.update(changes)
    return risk_report(result_of(cliffs)).splitlines()


def test_the_layout_is_the_golden_one() -> None:
    assert risk_report(result_of(sample()[0])) == GOLDEN


def test_the_bracket_states_the_confidence_that_was_asked_for() -> None:
    assert any("[99.9% interval 477" in line for line in lines_of(confidence=0.999))


def test_high_variance_is_claimed_only_where_the_transition_rule_is_met() -> None:
    met = {
        "name": "transition_sd",
        "fired": True,
        "at_bin": "b04",
        "reachable": True,
        "value": 0.47,
        "threshold": 0.4,
    }
    assert any("High Variance detected; Mean EM: 0.42" in line for line in lines_of(rules=[met]))
    assert not any("High Variance" in line for line in lines_of(rules=[]))
    unreachable = {**met, "fired": False, "reachable": False}
    assert not any("High Variance" in line for line in lines_of(rules=[unreachable]))


def test_no_variance_is_high_where_scores_are_right_or_wrong() -> None:
    met = {"name": "transition_sd", "fired": True, "at_bin": "b04", "reachable": True}
    met |= {"value": 0.47, "threshold": 0.4}
    bins = [b | {"sd": (b["mean"] * (1 - b["mean"])) ** 0.5} for b in sample()[0]["bins"]]
    assert not any("High Variance" in line for line in lines_of(rules=[met], bins=bins))


def test_a_transition_without_a_drop_is_not_alarming() -> None:
    zones = [z | {"mean": 1.0} if z["name"] == "transition" else z for z in sample()[0]["zones"]]
    (line,) = (line for line in lines_of(zones=zones) if "Transition" in line)
    assert line.startswith("[??] Transition Zone:")
    assert "a drop is not ruled out; Mean EM: 1.00" in line
    base = sample()[0]["baseline"] | {"mean": 1.0}
    close = [z | {"mean": 0.998} if z["name"] == "transition" else z for z in zones]
    (line,) = (x for x in lines_of(zones=close, baseline=base) if "Transition" in x)
    assert line.startswith("[??]")


def test_a_gain_is_no_negative_drop() -> None:
    zones = [z | {"mean": 1.0} if z["name"] == "degraded" else z for z in sample()[0]["zones"]]
    assert any("Score down 0.0%, no interval" in x for x in lines_of(zones=zones, cliff=None))


def test_calls_without_an_answer_are_in_the_second_line() -> None:
    missing = {"context_overflow": 30, "invalid_truncated": 0, "transport_error": 2}
    line = lines_of(missing=missing, missing_share=0.64)[1]
    assert line == (
        "32 of 50 calls have no answer: 30 did not fit the window, 2 failed on the way."
    )
    alone = lines_of(missing=missing | {"transport_error": 0}, missing_share=0.6)[1]
    assert alone == "30 of 50 calls did not fit the window."


def test_missing_answers_that_limit_the_cap_are_its_reason() -> None:
    rise = {"rises_at_tokens": 400, "ci_low": 380, "ci_high": 500, "share_short": 0.0}
    rise |= {"share_long": 0.6, "cap_tokens": 382}
    reason = "The cap is limited by missing answers."
    lines = lines_of(missing_by_length=rise, safe_cap_reason=reason)
    assert reason in lines
    assert any("Stable Region" in line and "of the answered calls" in line for line in lines)
    assert reason not in lines_of(safe_cap_reason=reason)


def test_a_cap_for_copied_answers_says_that_it_is_one() -> None:
    (line,) = (x for x in lines_of(copied_share=0.97) if "word for word" in x)
    assert line.startswith(
        "In 97% of the questions the answer occurs word for word in the document"
    )
    assert "reasoning often fails at shorter lengths" in line
    for share in (None, 0.6):
        assert not any("word for word" in x for x in lines_of(copied_share=share))


def test_what_a_longer_cap_needs_is_a_sentence_with_its_price() -> None:
    further = {"goal": "p90_cap", "goal_tokens": 3_000, "examples": 400, "documents": 200}
    further |= {"tokens": 600_000, "usd": 1.5, "reason": None}
    assert (
        "A cap at 3,000 tokens, the 90th percentile of the lengths, needs about 400 further "
        "examples on 200 further documents (about 600,000 tokens, 1.50 USD), "
        "with a chance of 80%."
    ) in lines_of(certify={"n_needed": None, "further": further})
    without = further | {"usd": None, "documents": None}
    assert any(
        line.endswith(
            "needs about 400 further examples (about 600,000 tokens), with a chance of 80%."
        )
        for line in lines_of(certify={"n_needed": None, "further": without})
    )


def test_without_a_cap_the_reason_stands_in_its_place() -> None:
    lines = lines_of(
        verdict="insufficient_data",
        safe_cap_tokens=None,
        safe_cap_reason="Only 12 documents: a verdict needs 20",
        cliff=None,
        critical_threshold=None,
        zones=[],
    )
    assert "These data support no hard cap. Only 12 documents: a verdict needs 20." in lines
    assert "Critical Threshold:    not supported by the data [INSUFFICIENT DATA]" in lines
    assert (
        lines[-1]
        == "Too few data to distinguish a drop from chance (200 examples over 200 documents)."
    )
    assert not any("Hard cap" in line for line in lines)


def test_a_loss_that_other_questions_explain_is_not_called_one_of_length() -> None:
    said = "Length is not shown to be the cause. Harder questions."
    lines = lines_of(confounds={"identified": "no", "reasons": ["harder questions"]})
    assert lines[lines.index(said) - 1].startswith("That is the document")
    assert said not in lines_of(confounds={"identified": "yes", "reasons": ["harder questions"]})
    flat, _ = sample("steady", l70=60_000)
    flat["confounds"] = {"identified": "no", "reasons": ["harder questions hide what length does"]}
    assert "not shown to be the cause" not in risk_report(result_of(flat))


def test_a_floor_is_not_called_a_cliff() -> None:
    lines = lines_of(
        verdict="floor",
        safe_cap_tokens=None,
        safe_cap_reason="The baseline is below .10.",
        cliff=None,
        critical_threshold=None,
        baseline={"mean": 0.03, "ci_low": 0.0, "ci_high": 0.1, "n": 30, "to_tokens": 107},
    )
    assert "Critical Threshold:    undefined, the score starts at the floor [FLOOR]" in lines
    assert lines[-1].startswith("The score is at the floor from the shortest documents on (0.03 [")


def test_a_stable_model_says_how_far_was_looked() -> None:
    cliffs, _ = sample("steady", l70=60_000)
    lines = risk_report(result_of(cliffs)).splitlines()
    found = "No drop of 30% was found at the measured lengths"
    assert lines[-1] == f"{found}, up to 6,314 tokens (77.1% of the window)."
    assert "Critical Threshold:    no large drop found up to 6,314 tokens" in lines
    assert "[XX] Degraded Region:    none found" in lines


def recovery(excluded: float | None, cap: int | None, assumption: str = "falling") -> str:
    made = {"assumption": assumption, "cap_tokens": cap, "share": 0.1, "excluded_drop": excluded}
    (line,) = (line for line in lines_of(recovery=made) if "longer" in line)
    return line


def test_the_assumption_of_the_cap_is_beside_it() -> None:
    line = recovery(0.55, 219)
    assert "A temporary dip of 55% would have shown if it covered 10% of the examples." in line
    assert line.endswith("For a model that may recover, the cap is 219 tokens.")
    assert recovery(None, None).endswith("For a model that may recover, these data show no cap.")
    assert "dip over 10% of the examples may have gone unseen." in recovery(None, None)
    assert recovery(None, 382, "any") == (
        "The cap also holds for a drop that recovers at longer lengths."
    )


def test_a_dip_says_that_the_score_comes_back() -> None:
    lines = lines_of(verdict="dip")
    assert lines[-1].endswith("of the window; the score recovers further out.")
    assert not any("also fails at longer ones" in line for line in lines)


def test_the_cap_of_a_limit_on_times_is_the_one_in_the_head() -> None:
    joint = {"tokens": 250, "prompt_tokens": None, "limited_by": "latency_limit"}
    lines = lines_of(joint_cap=joint)
    (head,) = (line for line in lines if line.startswith("Safe Cap:"))
    assert head.endswith(
        "250 tokens by the limit on the time to first token, 382 tokens by the scores"
    )
    assert any("Hard cap inference context at 250 tokens" in line for line in lines)


def test_what_lies_beyond_the_cap_is_not_stable_but_not_shown() -> None:
    zones = [
        {"name": "stable", "from_tokens": 100, "to_tokens": 383, "mean": 0.9},
        {"name": "not_shown", "from_tokens": 383, "to_tokens": 9_000, "mean": 0.88},
    ]
    lines = lines_of(verdict="stable", cliff=None, zones=zones)
    assert any(line.startswith("[OK] Stable Region:      100 - 382 tokens") for line in lines)
    beyond = "[--] Not Shown:          382 - 8,999 tokens (a drop is not ruled out; Mean EM: 0.88)"
    assert beyond in lines


def test_beside_the_cap_stands_what_lies_just_below_it() -> None:
    assert "Safe Cap:              382 tokens" in lines_of()
    lines = lines_of(last_octave={"answers": 41, "documents": 12})
    assert (
        "Safe Cap:              382 tokens (by 41 answers on 12 documents of more than 191 tokens)"
        in lines
    )


def test_an_unknown_window_is_said_and_not_divided_by() -> None:
    cliffs, _ = sample(window=None)
    lines = risk_report(result_of(cliffs)).splitlines()
    assert "Max Technical Context: unknown" in lines
    assert lines[-1] == (
        "The midpoint of the drop is at 575 tokens; the context window is unknown."
    )


def test_a_drop_that_may_lie_in_the_baseline_has_no_interval() -> None:
    cliff = sample()[0]["cliff"] | {"ci_low": None, "ci_high": None}
    (line,) = (one for one in lines_of(cliff=cliff) if one.startswith("Critical Threshold"))
    assert line.endswith("or less: the midpoint of the drop may lie within the shortest documents")


def test_a_drop_without_its_place_is_no_result() -> None:
    cliffs, _ = sample()
    cliffs["cliff"].update(location_tokens=None)
    with pytest.raises(ResultError, match=r"^cliff\.location_tokens is None, not an integer$"):
        result_of(cliffs)


def test_the_comparison_is_one_line_in_the_study_s_order() -> None:
    line = comparison_line(results_of(sample_pair()[0]))
    assert line == (
        "COMPARISON: Safe cap: reference-short 382 tokens, reference-long 1,479 tokens; "
        "midpoint of the drop: reference-short 575 [477, 701], reference-long 2,222 "
        "[1,844, 2,711]; the intervals do not overlap."
    )
    assert comparison_line(results_of(sample_pair()[0][:1])) == ""


def test_many_models_at_once_come_with_the_false_alarms_to_expect() -> None:
    stable = sample()[0] | {"verdict": "stable", "cliff": None}
    many = [stable | {"model": f"m{i}"} for i in range(49)] + [sample()[0]]
    assert comparison_line(results_of(many)).endswith(
        "1 of 50 models shows a drop. Chance alone would show up to 2.5 on average, and at least "
        "one with a probability of up to 92%."
    )
    assert "Chance" not in comparison_line(results_of(many[:4]))


def test_results_on_different_scales_are_not_compared_silently() -> None:
    pair, _ = sample_pair()
    pair[1]["tokenizer"] = "tiktoken:o200k_base"
    assert comparison_line(results_of(pair)).endswith(
        "Different tokenizers: not directly comparable."
    )


def test_two_campaigns_of_one_model_are_told_apart() -> None:
    first, _ = sample()
    second, _ = sample()
    second["campaign"] = "2026-12-01"
    line = comparison_line(results_of([first, second]))
    assert "reference-short (2026-11-21)" in line
    assert "reference-short (2026-12-01)" in line


def test_what_controls_say_is_listed_and_nothing_where_none_was_asked() -> None:
    assert control_lines(result_of(sample()[0])) == []
    controls = [
        {**control_of("no_context"), "says": ["Without it 0.10"]},
        {**control_of("oracle"), "says": []},
    ]
    asked = result_of({**sample()[0], "controls": controls})
    assert control_lines(asked) == ["CONTROLS:", "Without it 0.10."]
