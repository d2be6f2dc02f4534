"""Tables of others' outcomes become series, and what is no effect of context leaves them."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from csv import DictReader
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
from contextcliff_dagster.atlas.series import Series, series_of
from contextcliff_dagster.atlas.sources import COLUMNS, Source, load_sources, read_table
from contextcliff_dagster.contracts import ContextCliffError, Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster_tests.support.records.profiles import QUICK

SOURCES = Path(__file__).parents[2] / "docs" / "results" / "public" / "sources"
DATA = os.environ.get("CONTEXTCLIFF_REAL_DATA")
TABLES = Path(DATA or "") / "public_outcomes"
published = pytest.mark.skipif(
    not (DATA and TABLES.is_dir()), reason="CONTEXTCLIFF_REAL_DATA names no published outcomes"
)


def source(**given: Any) -> Source:
    return Source(name="S", table="t.csv", citation="C", **given)


def rows(count: int = 80, **given: Any) -> pd.DataFrame:
    """Answers at 1,000, 1,100, ... tokens, all right."""
    own = {
        "model": "m",
        "task": "t",
        "sample": [f"s{i}" for i in range(count)],
        "document": [f"d{i}" for i in range(count)],
        "length_tokens": 1_000 + 100 * np.arange(count),
        "length_unit": "tokens_model",
        "score": 1.0,
        "prompt_variant": "full",
    }
    table = pd.DataFrame({**own, **given})
    return table.assign(**{name: "" for name in COLUMNS if name not in table})


def only(table: pd.DataFrame, of: Source | None = None) -> Series:
    (one,) = series_of("s", of or source(), table)
    return one


def judged(series: Series) -> Cliffs:
    settings = replace(QUICK, chance=series.chance)
    return profile_model(series.records, [], settings, ProfileContext(series.model)).cliffs


def test_names_are_merged_and_units_and_conditions_are_not() -> None:
    of = source(
        aliases={"m": "model", "m-0613": "model"},
        tasks={"t": "questions"},
        pool=":",
        conditions={"full": "whole text"},
    )
    table = pd.concat([
        rows(task="t:easy"),
        rows(task="t:hard", model="m-0613"),
        rows(length_unit="words"),
        rows(prompt_variant="half"),
    ])  # fmt: skip
    found = {
        (s.model, s.task, s.condition, s.unit): len(s.records) for s in series_of("s", of, table)
    }
    assert found == {
        ("model", "questions", "whole text", "tokens_model"): 160,
        ("model", "questions", "whole text", "words"): 80,
        ("model", "questions", "half", "tokens_model"): 80,
    }


def test_lengths_that_are_none_or_of_texts_that_were_not_read_make_no_series() -> None:
    for unit in (
        "class",
        "tokens_task_average",
        "words:not_in_prompt",
        "words:hierarchical_chunks",
    ):
        assert series_of("s", source(), rows(length_unit=unit)) == []
    assert series_of("s", source(), rows(length_tokens=np.nan)) == []


@pytest.mark.parametrize(
    ("count", "documents", "natural", "few"),
    [
        (60, 20, True, False),
        (59, 59, True, True),
        (150, 15, True, True),
        (60, 5, False, False),
        (59, 59, False, True),
        (100, 4, False, True),
    ],
)
def test_too_few_answers_have_no_verdict(
    count: int, documents: int, natural: bool, few: bool
) -> None:
    group = np.arange(count) % documents
    names = [f"d{i}" for i in group]
    one = only(
        rows(count, document=names, length_tokens=1_000 * (1 + group)), source(natural=natural)
    )
    assert bool(one.few) == few


def test_calls_that_failed_are_no_wrong_answers() -> None:
    lengths = np.repeat([8_000, 16_000, 32_000, 64_000, 128_000], 20)
    lost = lengths == 32_000
    variant = np.where(lost, "full:call_failed", "full")
    table = rows(100, length_tokens=lengths, prompt_variant=variant, score=np.where(lost, 0.0, 1.0))
    one = only(table, source(natural=False, failed=["call_failed"]))
    assert one.condition == "full"
    assert one.records["score"].isna().sum() == 20
    assert "20 of 100 calls failed or came back without a token, at 32,000 tokens" in one.notes[0]
    assert judged(one).verdict is Verdict.STABLE


def test_replies_of_no_token_are_calls_that_failed() -> None:
    empty = np.arange(80) >= 60
    tokens = np.where(empty, "0", "12")
    one = only(rows(score=np.where(empty, 0.0, 1.0)).assign(completion_tokens=tokens))
    assert one.records["score"].isna().sum() == 20
    assert "failure of calls" in one.notes[0]


def test_one_reply_to_whatever_is_asked_is_a_server_that_fails() -> None:
    fails = np.arange(80) >= 50
    replies = np.where(fails, "<pad>", [f"answer {i}" for i in range(80)])
    one = only(rows(score=np.where(fails, 0.0, 1.0)).assign(reply=replies))
    assert one.records["score"].isna().sum() == 30
    assert "From 6,000 tokens on one reply comes" in one.notes[0]
    wrong = rows(score=np.where(fails, 0.0, 1.0)).assign(reply=[f"answer {i}" for i in range(80)])
    assert only(wrong).notes == (), "wrong answers of many kinds stay wrong"


def test_prompts_read_as_one_number_of_tokens_were_cut() -> None:
    read = np.minimum(1_000 + 100 * np.arange(80), 6_000)
    one = only(rows().assign(prompt_tokens=read.astype(str)))
    assert one.records["score"].isna().sum() == 30
    assert "cut without a word" in one.notes[0]


def test_nothing_was_read_beyond_a_cut_nor_beyond_the_window() -> None:
    cut = source(cut=[{"tokens": 5_000, "where": "tail", "models": ["m"]}])
    one = only(rows(200), cut)
    assert one.records["length_tokens"].max() == one.read_to == 5_000
    assert "Nothing was read beyond 5,000 tokens" in one.notes[0]
    windowed = only(rows(200), source(windows={"m": 7_000}))
    assert windowed.records["length_tokens"].max() == windowed.window == 7_000
    assert "the model's window" in windowed.notes[0]
    named = source(cut=[{"pattern": r"max(\d+)", "where": "middle"}])
    assert only(rows(200, prompt_variant="full:max4000"), named).read_to == 4_000
    assert only(rows(200), named).read_to is None
    elsewhere = source(cut=[{"tokens": 5_000, "where": "tail", "models": ["other"]}])
    both = pd.concat([rows(200), rows(200, model="other")])
    found = {one.model: one.read_to for one in series_of("s", elsewhere, both)}
    assert found == {"m": None, "other": 5_000}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"windows": {"n": 9}}, "`windows` names 'n'"),
        ({"cut": [{"tokens": 5, "where": "tail", "models": ["n"]}]}, "`cut.models` names 'n'"),
        ({"chance": {"u": 0.2}}, "`chance` names 'u'"),
        ({"natural": ["u"]}, "`natural` names 'u'"),
        ({"conditions": {"ful": "whole"}, "only": True}, "`conditions` names 'ful'"),
    ],
)
def test_a_key_that_names_what_the_table_lacks_is_an_error(keys: Any, words: str) -> None:
    with pytest.raises(ContextCliffError, match=words):
        series_of("s", source(**keys), rows())


def test_keys_take_the_names_of_the_table_and_the_common_ones() -> None:
    for model in ("m", "model"):
        for task in ("t", "questions"):
            of = source(
                aliases={"m": "model"}, tasks={"t": "questions"}, windows={model: 5_000},
                cut=[{"tokens": 4_000, "where": "tail", "models": [model]}], natural=[task],
                made="x", chance={task: 0.25},
            )  # fmt: skip
            one = only(rows(200), of)
            assert (one.window, one.read_to, one.natural, one.chance) == (5_000, 4_000, True, 0.25)


def test_rows_of_one_answer_are_one_answer() -> None:
    thrice = pd.concat([rows(30)] * 3)
    assert "30 answers on 30 documents" in only(thrice).few
    assert "30 prompts" in only(thrice, source(natural=False)).few
    needles = pd.concat([rows(20, sample=[f"s{i}-{k}" for i in range(20)]) for k in range(9)])
    needles["length_tokens"] = needles["length_tokens"] // 500 * 500
    assert "20 prompts" in only(needles, source(natural=False)).few
    two_names = pd.concat([rows(40), rows(40, model="m-0613")])
    assert "40 answers" in only(two_names, source(aliases={"m-0613": "m"})).few


def test_a_unit_that_is_not_known_is_named() -> None:
    assert [only(rows(length_unit=unit)).unit for unit in ("Words", "word", "characters")] == [
        "words", "words", "chars",
    ]  # fmt: skip
    with pytest.raises(ContextCliffError, match="'pages' is unknown"):
        series_of("s", source(), rows(length_unit="pages"))


def test_an_empty_reply_is_a_failed_call_whatever_was_read() -> None:
    table = rows(200, prompt_tokens=1_000 + 100 * np.arange(200))
    table["completion_tokens"] = np.where(table["length_tokens"] > 12_000, 0, 5)
    table["score"] = np.where(table["length_tokens"] > 12_000, 0.0, 1.0)
    one = only(table)
    assert "came back without a token" in one.notes[0]
    assert judged(one).verdict is Verdict.STABLE


@given(st.integers(0, 5), st.integers(0, 2))
def test_a_silent_cut_is_seen_whatever_jitters(jitter: int, longer: int) -> None:
    lengths = 1_000 + 100 * np.arange(200)
    read = np.minimum(lengths, 12_000) - np.arange(200) % (jitter + 1)
    read[150 : 150 + longer] = 15_000
    one = only(rows(200, prompt_tokens=read, score=(lengths < 12_000).astype(float)))
    assert any("was cut without a word" in note for note in one.notes)


def test_prompts_of_a_few_sizes_are_not_cut() -> None:
    sizes = np.repeat([1_000, 2_000, 4_000, 8_000, 16_000], 40)
    one = only(rows(200, length_tokens=sizes, prompt_tokens=sizes + 7), source(natural=False))
    assert not one.notes


@pytest.mark.parametrize("column", ["reply", "response"])
def test_one_reply_is_a_failure_though_it_repeats_or_scores_a_little(
    tmp_path: Path, column: str
) -> None:
    far = np.arange(200) >= 100
    table = rows(200, score=np.where(far, 0.02, 1.0))
    table[column] = ["<pad>" * (1 + i % 4) if i >= 100 else f"answer {i}" for i in range(200)]
    table.to_csv(tmp_path / "t.csv", index=False)
    one = only(read_table(tmp_path / "t.csv"))
    assert any("one reply comes whatever is asked" in note for note in one.notes)


@given(
    st.sampled_from(["words", "chars", "chars_zh", "bytes_prompt", "tokens_model"]),
    st.integers(100, 10**6),
)
def test_a_cut_in_another_unit_is_no_longer_than_the_densest_text_allows(
    unit: str, tokens: int
) -> None:
    most = {"words": 2.0, "chars": 2.0, "chars_zh": 2.0, "bytes_prompt": 1.0}.get(unit, 1.0)
    read_to = only(
        rows(length_unit=unit), source(cut=[{"tokens": tokens, "where": "tail"}])
    ).read_to
    assert read_to is not None
    assert read_to * most <= tokens < (read_to + 1) * most + 1e-6


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cut: [{tokens: 5, where: nowhere}]", "where"),
        ("cut: [{pattern: 'max', where: tail}]", "one group"),
        ("cut: [{pattern: '(', where: tail}]", "not a regular expression"),
        ("chance: {t: 1.5}", "less than or equal to 0.9"),
        ("series: [colour]", "no column 'colour'"),
        ("table: ../elsewhere.csv", "without a folder"),
        ("windows: {m: 0}", "greater than or equal to 1"),
        ("trap: [mind the gap]", "trap"),
    ],
)
def test_a_source_that_is_not_of_the_shape_is_named_in_one_sentence(
    tmp_path: Path, line: str, says: str
) -> None:
    table = "" if line.startswith("table") else "table: t.csv\n"
    (tmp_path / "s.yaml").write_text(f"name: S\n{table}citation: C\n{line}\n")
    with pytest.raises(ContextCliffError, match=r"s\.yaml, line") as error:
        load_sources(tmp_path)
    assert says in str(error.value)


def test_a_folder_without_sources_and_a_table_without_scores_are_named(tmp_path: Path) -> None:
    with pytest.raises(ContextCliffError, match="no YAML file"):
        load_sources(tmp_path)
    with pytest.raises(ContextCliffError, match="cannot be read"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.csv").write_text("model,length_tokens\nm,1\n")
    with pytest.raises(ContextCliffError, match="no column 'score'"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("model,length_tokens,score\nm,1,2\nm,1,-1\nm,1,nan\n")
    with pytest.raises(ContextCliffError, match=r"2 scores outside 0\.\.1"):
        read_table(tmp_path / "t.csv")
    whole = gzip.compress(b"model,length_tokens,score\n" + b"m,1,1\n" * 1_000)
    for damaged in (whole[:-20], whole[:30] + bytes(20) + whole[50:], b"\xff\xfe\x00", b""):
        (tmp_path / "t.csv.gz").write_bytes(damaged)
        with pytest.raises(ContextCliffError, match="cannot be read"):
            read_table(tmp_path / "t.csv.gz")


def test_answers_without_names_stand_for_themselves_and_infinite_lengths_are_none(
    tmp_path: Path,
) -> None:
    lines = [f"m,{1_000 + row},1" for row in range(70)]
    text = "\n".join(["model,length_tokens,score", *lines, "m,inf,1", "m,nan,1", "m,-5,1"])
    (tmp_path / "t.csv").write_text(text)
    one = only(read_table(tmp_path / "t.csv"))
    assert (one.few, len(one.records), one.unit) == ("", 70, "tokens")


def test_the_sources_that_the_project_has_are_of_the_shape() -> None:
    for name, one in load_sources(SOURCES).items():
        assert one.licence or any("no licence" in trap for trap in one.traps), name
        assert one.is_natural("no such task") is False or one.natural is True
        assert one.natural is True or one.made, name


@pytest.fixture(scope="module")
def real() -> list[Series]:
    found = []
    for name, one in load_sources(SOURCES).items():
        found += series_of(name, one, read_table(TABLES / one.table))
    return found


def of(real: list[Series], source: str, model: str, task: str, condition: str = "") -> Series:
    (one,) = (
        s
        for s in real
        if (s.source, s.model) == (source, model) and s.task == task and condition in s.condition
    )
    return one


@published
def test_published_outcomes_have_so_many_models_and_series(real: list[Series]) -> None:
    enough = [one for one in real if not one.few]
    assert len({one.model for one in enough}) >= 30
    assert len(enough) >= 150
    assert len({one.key for one in real}) == len(real)


@published
def test_a_cap_belongs_to_the_prompt(real: list[Series]) -> None:
    """Figures that were found by hand with `analyze` on the same answers."""
    task, model = "questions on annual reports", "gpt-4-turbo-1106"
    first = judged(of(real, "financebench", model, task, "before"))
    assert first.safe_cap_tokens == 16_305
    assert first.cliff is not None
    assert (first.cliff.location_tokens, first.cliff.ci_low, first.cliff.ci_high) == (
        20_344, 17_502, 63_451,
    )  # fmt: skip
    after = of(real, "financebench", model, task, "after")
    result = judged(after)
    assert result.verdict is Verdict.STABLE
    assert 100_000 < (result.safe_cap_tokens or 0) <= (after.read_to or 0) == 105_000


@published
def test_a_model_that_hardly_beats_guessing_has_no_cap(real: list[Series]) -> None:
    for condition in ("whole text", "an agent's frame"):
        found = [s for s in real if s.source == "longbench-v2" and s.model == "gpt-4o-mini"]
        for one in (s for s in found if condition in s.condition):
            assert judged(one).safe_cap_tokens is None


@published
def test_calls_that_all_failed_are_no_verdict(real: list[Series]) -> None:
    for one in (s for s in real if s.source == "zh-niah" and s.model == "moonshot"):
        at = one.records[one.records["length_tokens"].between(30_000, 34_000)]
        assert at["score"].isna().all()


def second_reading(name: str, one: Source) -> dict[tuple[str, ...], list[tuple[float, float]]]:
    """Length and score of each answer by series, from the table's own rows alone."""
    with gzip.open(TABLES / one.table, "rt", encoding="utf-8") as file:
        table = list(DictReader(file))
    answers: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = defaultdict(dict)
    for row in table:
        unit, variant = row["length_unit"], row["prompt_variant"]
        unread = unit in ("class", "tokens_task_average") or any(
            mark in unit for mark in ("not_in_prompt", "hierarchical")
        )
        failed = any(mark in variant for mark in one.failed)
        unnamed = one.only and variant not in one.conditions
        if unread or failed or unnamed or not row["length_tokens"] or not row["score"]:
            continue
        task = row["task"].split(one.pool)[0] if one.pool else row["task"]
        words = [one.conditions.get(row[column], row[column]) for column in one.series]
        starts = ("chars_zh", "words", "chars", "bytes")
        series = (
            one.aliases.get(row["model"], row["model"]),
            one.tasks.get(task, task),
            ", ".join(word for word in words if word),
            next((start for start in starts if unit.startswith(start)), unit),
        )
        example = row["document"], row["sample"], row["length_tokens"]
        scores = answers[series].setdefault(example, [])
        scores.append(float(row["score"]))
    return {
        series: [(float(key[2]), fmean(scores)) for key, scores in examples.items()]
        for series, examples in answers.items()
    }


@published
def test_each_mean_is_that_of_a_second_reading() -> None:
    """n and mean of every bin of every series of the atlas; nothing of the atlas reads the rows."""
    known = json.loads((SOURCES.parent / "atlas.json").read_text())["series"]
    assert len(known) >= 150
    for name, one in load_sources(SOURCES).items():
        read = second_reading(name, one)
        for row in (row for row in known if row["source"] == name):
            key = row["model"], row["task"], row["condition"], row["unit"]
            most = min(row["read_to"] or np.inf, row["window"] or np.inf)
            lengths, scores = map(np.array, zip(*read[key], strict=True))
            for place, (low, high, n, mean) in enumerate(row["bins"]):
                last = place == len(row["bins"]) - 1
                inside = (lengths >= low) & ((lengths < high) | (last & (lengths <= high)))
                inside &= lengths <= most
                assert inside.sum() == n, (key, low, high)
                if n:
                    assert scores[inside].mean() == pytest.approx(mean), (key, low, high)
