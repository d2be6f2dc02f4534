"""The data in report.html: answers only where asked for, without secrets, and never too large."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import ANSWERS, conform
from contextcliff_dagster.redaction import without_secrets
from contextcliff_dagster.reporting.html.payload import (
    LIMITS,
    NO_EVIDENCE,
    payload_of,
    profile_page,
)
from contextcliff_dagster.reporting.length_profile.page import report_page
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.answer_tables import answered, data_of, evidence_of

MADE = [answered("short"), answered("long", l70=1700, seed=2)]
RESULTS = [result for result, *_ in MADE]
RECORDS = pd.concat([records for _, records, _ in MADE], ignore_index=True)


def same(text: str) -> str:
    return text


def test_the_page_has_answers_only_where_they_are_handed_over(tmp_path: Path) -> None:
    for asked in (True, False):
        evidence = evidence_of(MADE, with_answers=asked)
        files = write_report(RESULTS, RECORDS, tmp_path, title="t", evidence=evidence)
        page = files.html.read_text(encoding="utf-8")
        assert ("consignment" in page) is asked
        assert ("given" in data_of(page)) is asked
        for other in (files.md, files.json):
            assert "consignment" not in other.read_text(encoding="utf-8")


def test_every_answer_is_in_its_place() -> None:
    data = payload_of(RESULTS, evidence_of(MADE), same)
    for (_, records, rows), given_by in zip(MADE, data["given"], strict=True):
        assert len(given_by["example"]) == len(records)
        for place, row in enumerate(rows):
            example = given_by["example"][place]
            assert data["examples"]["question"][example] == row["question"]
            assert data["examples"]["accepted"][example] == row["accepted"]
            assert data["examples"]["x"][example] == row["length_tokens"]
            assert given_by["answer"][place] == row["answer"]
            assert given_by["em"][place] == row["em"]
            assert given_by["f1"][place] == pytest.approx(row["f1"], abs=5e-4)
            assert given_by["tag"][place] == row["failure"]


def test_single_answers_without_text_have_lengths_and_all_scores() -> None:
    evidence = evidence_of(MADE, with_answers=False)._replace(records=RECORDS)
    for (_, records, _), model in zip(
        MADE, payload_of(RESULTS, evidence, same)["models"], strict=True
    ):
        points = model["points"]
        assert points["x"] == sorted(records["length_tokens"])
        assert sum(points["em"]) == records["em"].sum()
        assert sum(points["f1"]) == pytest.approx(records["f1"].sum(), abs=0.1)


def test_many_single_answers_are_thinned_evenly() -> None:
    many = pd.concat([RECORDS] * 200, ignore_index=True)
    evidence = evidence_of(MADE, with_answers=False)._replace(records=many)
    for model in payload_of(RESULTS, evidence, same)["models"]:
        points = model["points"]["x"]
        assert len(points) == 4_500
        mine = many[many["model"] == model["name"]]["length_tokens"]
        assert points[0] == mine.min()
        assert points[-1] == mine.max()
        assert points[2_250] == pytest.approx(mine.median(), rel=0.05)


share = st.floats(0, 1) | st.integers(0, 40).map(lambda k: k / 40)


@given(st.lists(st.tuples(share, share, share).map(sorted), min_size=10, max_size=10), share)
def test_every_figure_is_that_of_the_result_to_the_printed_digit(
    bins: list[list[float]], base: float
) -> None:
    """Halves are where two ways of rounding part: .125 and .625 are among the values."""
    first, second = RESULTS
    means = [
        replace(b, mean=mid, ci_low=low, ci_high=high)
        for b, (low, mid, high) in zip(first.bins, bins, strict=True)
    ]
    baseline = replace(first.baseline, mean=base, ci_low=base / 2, ci_high=(base + 1) / 2)
    results = [replace(first, bins=means, baseline=baseline), second]
    page = profile_page(
        results, report_page(results, title="t"), NO_EVIDENCE, title="t", pictures={}, redact=same
    )
    shown = data_of(page)["models"][0]["bins"]
    cards, tables = re.sub("<[^>]+>", "|", page.split("<script")[0]).split("Score over", 1)
    for b, words, n in zip(means, shown["scores"]["em"]["words"], shown["n"], strict=True):
        assert words == f"{b.mean:.2f} [{b.ci_low:.2f}, {b.ci_high:.2f}]"
        assert f"|{words}|" in tables
        assert n == b.n
    assert f"|{base:.2f} [{base / 2:.2f}, {(base + 1) / 2:.2f}]|" in cards
    assert f"|{first.safe_cap_tokens:,} tokens|" in cards
    assert "The band in the picture is wider than the bound behind a cap." in cards
    cliff = first.cliff
    assert cliff is not None
    place = f"{cliff.location_tokens:,} [{cliff.ci_low:,}, {cliff.ci_high:,}] tokens"
    assert f"|{place}|" in cards
    assert [cap for _, cap in data_of(page)["models"][0]["fits"]["em"]["caps"]] == [
        one.safe_cap_tokens for one in first.caps_by_tolerance
    ]


@given(st.integers(0, 30_000), st.integers(1, 40))
def test_long_answers_are_shortened_until_all_fit(length: int, models: int) -> None:
    made = [answered(f"m{i}", lambda i: "word " * (length // 5), per_bin=5) for i in range(models)]
    data = payload_of([result for result, *_ in made], evidence_of(made), same)
    limit = data["limit"]
    assert limit in LIMITS
    texts = [text for columns in data["given"] for text in columns["answer"]]
    assert max(map(len, texts)) <= limit + len(" […]")
    assert all(text.endswith("[…]") == (length // 5 * 5 > limit) for text in texts)
    if limit > LIMITS[-1]:
        assert sum(map(len, texts)) <= 1_200_000 + 4 * len(texts)


@given(st.integers(1_900, 2_100))
def test_no_secret_is_cut_so_that_half_of_it_is_shown(before: int) -> None:
    secret = "sk-proj-" + "a1B2" * 12
    made = [answered("m", lambda i: " ".join(["x" * before, secret, "y" * 800]), per_bin=2)]
    redact = partial(without_secrets, secrets=())
    for text in payload_of([made[0][0]], evidence_of(made), redact)["given"][0]["answer"]:
        assert "sk-" not in text
        assert "a1B2" not in text


def test_what_has_no_answer_is_not_right_or_wrong() -> None:
    result, records, rows = answered("m", per_bin=2)
    gone = {"answer": None, "score": None, "em": None, "f1": None, "contained": None}
    rows[0] |= gone | {"failure": "transport_error", "error": "no route"}
    rows[1] |= {
        "question": None,
        "accepted": None,
        "answer": '{"a": "bay 12"}',
        "parsed_answer": "bay 12",
    }
    evidence = evidence_of([(result, records, rows)])
    data = payload_of([result], evidence, same)
    columns = data["given"][0]
    assert (columns["em"][0], columns["tag"][0], columns["answer"][0]) == (
        None,
        "transport_error",
        None,
    )
    assert data["examples"]["question"][1] is None
    assert (columns["answer"][1], columns["read"][1]) == ('{"a": "bay 12"}', "bay 12")


def test_answers_of_controls_and_of_models_without_a_result_stay_out() -> None:
    result, _, rows = answered("m", per_bin=2)
    rows[0]["control"], rows[1]["model"] = "oracle", "other"
    evidence = evidence_of([])._replace(answers=conform(rows, ANSWERS))
    assert len(payload_of([result], evidence, same)["given"][0]["example"]) == len(rows) - 2


def test_three_models_of_a_thousand_long_answers_stay_small(tmp_path: Path) -> None:
    made = [answered(name, lambda i: "é" * 5_000, per_bin=100) for name in ("a", "b", "c")]
    records = pd.concat([one[1] for one in made], ignore_index=True)
    files = write_report(
        [one[0] for one in made], records, tmp_path, title="t", evidence=evidence_of(made)
    )
    assert files.html.stat().st_size < 2_000_000


def test_a_model_named_with_a_secret_keeps_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "opensesame1234")
    made = [answered("model at opensesame1234", per_bin=3)]
    files = write_report([made[0][0]], made[0][1], tmp_path, title="t", evidence=evidence_of(made))
    page = files.html.read_text(encoding="utf-8")
    assert "opensesame" not in page
    data = data_of(page)
    assert len(data["given"][0]["answer"]) == len(made[0][1])
    assert set(data["scores"]) == {"em", "f1"}
