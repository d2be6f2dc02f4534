"""Logs of other tools, in the formats that they publish: what is taken, counted, and said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.score_files import (
    LogOptions,
    ScoreFileError,
    ScoreRecords,
    pooled,
    read_log,
)
from contextcliff_dagster.score_files.logs import inspect_ai
from contextcliff_dagster_tests.support.files.log_files import (
    deflated,
    inspect_head,
    inspect_sample,
    lm_eval_row,
    longbench_2_row,
    members_of,
    small_tokenizer,
    stored,
    text,
    write_helmet,
    write_inspect,
    write_inspect_json,
    write_lines,
    write_zip,
    zstandard,
)


def read(path: Path, **options: Any) -> ScoreRecords:
    records = read_log(path, LogOptions(open_tokenizer=small_tokenizer, **options))
    assert records is not None
    return records


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ScoreFileError) as caught:
        read_log(path, LogOptions(open_tokenizer=small_tokenizer, **options))
    message = str(caught.value)
    assert message.count("\n") == 0
    return message


def tokens(of: str) -> int:
    return small_tokenizer("").count(of)


def said(records: ScoreRecords) -> str:
    return " ".join(records.notes)


# inspect_ai


@pytest.mark.parametrize("pack", [zstandard, deflated, stored])
def test_a_log_of_inspect_is_the_same_however_it_is_packed(pack: Any, tmp_path: Path) -> None:
    samples = [inspect_sample(n) for n in range(1, 9)]
    packed = read(write_zip(tmp_path / "a.eval", members_of(inspect_head(), samples), pack))
    plain = read(write_inspect_json(tmp_path / "a.json", samples))
    pd.testing.assert_frame_equal(packed.frame, plain.frame)
    assert (packed.model, packed.task, packed.score_name) == (
        "openai/some-model",
        "crates",
        "exact",
    )
    assert list(packed.frame["score"]) == [1, 1, 1, 1, 0, 0, 0, 0]
    # What came from a cache is part of the prompt.
    assert list(packed.frame["length_tokens"]) == [10 * n + 5 for n in range(1, 9)]
    assert "prompt tokens" in said(packed)
    assert packed.tokenizer is None


def test_times_and_copied_answers_of_a_log_are_known(tmp_path: Path) -> None:
    at = [f"2026-03-01T09:00:{n:02d}+00:00" for n in range(30)]
    samples = [inspect_sample(n, completed_at=at[n]) for n in range(1, 30)]
    records = read(write_inspect(tmp_path / "a.eval", samples))
    assert list(records.frame["finished_at"]) == [pd.Timestamp(one) for one in at[1:]]
    assert records.copied_share == 1.0  # the number of the document is the answer
    without = read(write_inspect(tmp_path / "b.eval", [inspect_sample(n) for n in range(1, 9)]))
    assert "finished_at" not in without.frame
    assert without.copied_share is None


def test_lengths_are_counted_where_asked_for_or_where_there_are_none(tmp_path: Path) -> None:
    samples = [inspect_sample(n, output={"completion": "x"}) for n in range(1, 4)]
    for path, options in (
        (write_inspect(tmp_path / "none.eval", samples), {}),
        (
            write_inspect(tmp_path / "some.eval", [inspect_sample(n) for n in range(1, 4)]),
            {"tokenizer": "tiktoken:o200k_base"},
        ),
    ):
        records = read(path, **options)
        assert list(records.frame["length_tokens"]) == [tokens(s["input"]) for s in samples]
        assert records.tokenizer == "tiktoken:o200k_base"
        assert "of the whole prompt" in said(records)


def test_epochs_are_replicates_and_a_document_in_the_metadata_is_the_unit(tmp_path: Path) -> None:
    page = text(1, 50)
    samples = [
        inspect_sample(n, epoch, input=f"{page} Question {n}?", metadata={"context": page})
        for n in (1, 2, 3)
        for epoch in (1, 2)
    ]
    records = read(write_inspect(tmp_path / "a.eval", samples), tokenizer="tiktoken:o200k_base")
    assert records.frame["document_id"].nunique() == 1
    assert records.frame["example_id"].nunique() == 3
    assert sorted(records.frame["replicate"]) == [0, 0, 0, 1, 1, 1]
    assert set(records.frame["length_tokens"]) == {tokens(page)}
    assert "they repeat 3 examples" in said(records)
    assert "whole prompt" not in said(records)


def test_a_question_over_another_text_is_no_repeat(tmp_path: Path) -> None:
    samples = [inspect_sample(n) for n in (1, 2)]
    short = write_inspect(tmp_path / "short.eval", samples)
    longer = [{**sample, "input": sample["input"] * 9} for sample in samples]
    long = write_inspect(tmp_path / "long.eval", longer)
    (whole,) = pooled([(path, [read(path)]) for path in (short, long)])
    assert whole.frame["example_id"].nunique() == 4
    (twice,) = pooled([(path, [read(path)]) for path in (short, short)])
    assert twice.frame["example_id"].nunique() == 2
    assert sorted(twice.frame["replicate"]) == [0, 0, 1, 1]


def test_what_could_not_be_used_is_counted_in_one_line(tmp_path: Path) -> None:
    samples = [inspect_sample(n) for n in range(1, 7)]
    samples[0] |= {"error": {"message": "no"}, "scores": {}}
    samples[1]["scores"] = {"exact": {"value": float("nan")}}
    samples[2]["output"] = {"completion": "3"}
    records = read(write_inspect(tmp_path / "a.eval", samples[3:] + samples[:3]))
    assert len(records.frame) == 3
    assert (
        "a.eval is a log of inspect_ai: 3 of 6 answers used, left out: 1 with an error, "
        "1 without a length, 1 without a score" in records.notes[0]
    )


@given(
    fresh=st.integers(1, 10**6),
    read_again=st.integers(0, 10**6),
    put_away=st.integers(0, 10**6),
    written=st.integers(0, 10**4),
)
def test_a_prompt_is_as_long_whether_or_not_the_input_counts_what_came_from_a_cache(
    fresh: int, read_again: int, put_away: int, written: int
) -> None:
    whole = fresh + read_again + put_away
    usage = {
        "input_tokens_cache_read": read_again,
        "input_tokens_cache_write": put_away,
        "output_tokens": written,
        "total_tokens": whole + written,
    }
    for counted in (fresh, whole):  # since 0.3.185, and OpenAI's before
        assert length_of({**usage, "input_tokens": counted}) == whole


def test_what_is_more_than_the_input_is_no_part_of_it() -> None:
    usage = {"input_tokens": 10, "output_tokens": 2, "input_tokens_cache_read": 50}
    assert length_of({**usage, "total_tokens": 12}) == 60  # a proxy leaves it out of the total


def length_of(usage: dict[str, int]) -> float | None:
    return inspect_ai._answer(inspect_sample(1, output={"completion": "", "usage": usage})).length


@pytest.mark.parametrize(
    ("reason", "failure", "words"),
    [
        ("model_length", "context_overflow", "longer than the model accepts"),
        ("content_filter", "content_filter", "withheld by a content filter"),
    ],
)
@pytest.mark.parametrize("at", [0, 4, 7])
@pytest.mark.parametrize("counted", [False, True])
def test_no_answer_is_neither_right_nor_wrong(
    reason: str, failure: str, words: str, at: int, counted: bool, tmp_path: Path
) -> None:
    tokenizer = {"tokenizer": "tiktoken:o200k_base"} if counted else {}
    samples = [inspect_sample(n) for n in range(1, 9)]
    there = read(write_inspect_json(tmp_path / "there.json", samples), **tokenizer)
    text = "This model's maximum context length is 8192 tokens"
    samples[at]["output"] = {"choices": [{"message": {"content": text}, "stop_reason": reason}]}
    records = read(write_inspect_json(tmp_path / "missing.json", samples), **tokenizer)
    scored = records.frame[records.frame["score"].notna()].reset_index(drop=True)
    wanted = there.frame.drop(index=at).reset_index(drop=True)
    pd.testing.assert_frame_equal(
        scored[["length_tokens", "score"]], wanted[["length_tokens", "score"]]
    )
    assert f"7 of 8 answers used, left out: 1 {words}" in said(records)
    if counted:  # then its length is known, too
        (missing,) = records.frame[records.frame["score"].isna()].itertuples()
        assert missing.length_tokens == there.frame["length_tokens"][at]
        assert missing.failure == failure


@pytest.mark.parametrize(
    ("value", "score"),
    [("C", 1.0), ("P", 0.5), ("N", 0.0), ("yes", 1.0), ("0.25", 0.25), (True, 1.0), (0.75, 0.75)],
)
def test_values_mean_what_inspect_means_by_them(value: Any, score: float, tmp_path: Path) -> None:
    samples = [inspect_sample(n, scores={"s": {"value": value}}) for n in (1, 2)]
    assert set(read(write_inspect(tmp_path / "a.eval", samples)).frame["score"]) == {score}


def test_one_of_several_scores_is_chosen_by_name(tmp_path: Path) -> None:
    scores = {"exact": {"value": "I"}, "judge": {"value": {"tone": 0.5, "sense": 1.0}}}
    path = write_inspect(tmp_path / "a.eval", [inspect_sample(n, scores=scores) for n in (1, 2)])
    assert "3 scores; found: exact, judge/sense, judge/tone" in refused(path)
    assert "no score 'f1'; found: exact" in refused(path, metric="f1")
    assert set(read(path, metric="judge/tone").frame["score"]) == {0.5}
    scored = read(path, own_score="em")
    assert (scored.score_name, set(scored.frame["score"])) == ("em", {1.0})
    assert "Scored here: em" in said(scored)


def test_a_run_that_failed_is_taken_only_if_asked(tmp_path: Path) -> None:
    failed = inspect_head("error", error={"message": "TimeoutError('a long request')"})
    samples = [inspect_sample(n) for n in (1, 2, 3)]
    for path in (
        write_inspect(tmp_path / "a.eval", samples, failed),
        write_inspect_json(tmp_path / "a.json", samples, failed),
    ):
        sentence = refused(path)
        assert "a run that failed (TimeoutError)" in sentence
        assert "--partial" in sentence
        records = read(path, partial=True)
        assert len(records.frame) == 3
        assert "failed (TimeoutError)" in said(records)
    members = members_of(inspect_head(), samples)
    del members["header.json"]
    assert "has not ended" in refused(
        write_zip(tmp_path / "b.eval", {**members, "_journal/start.json": b'{"eval": {}}'})
    )


# lm-evaluation-harness


def test_samples_of_lm_eval_with_their_document_and_the_model_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "samples_crates_2026-01-02T03-04-05.678901.jsonl"
    write_lines(path, [lm_eval_row(n) for n in range(1, 9)])
    summary = tmp_path / "results_2026-01-02T03-04-05.678901.json"
    summary.write_text('{"results": {"crates": {"alias": "crates"}}, "model_name": "org/m"}')
    records = read(path)
    assert (records.model, records.task, records.score_name) == ("org/m", "crates", "exact_match")
    assert list(records.frame["length_tokens"]) == [tokens(text(n, 10 * n)) for n in range(1, 9)]
    assert list(records.frame["score"]) == [1, 1, 1, 1, 0, 0, 0, 0]
    assert records.notes == (
        f"{path.name} is a log of lm-evaluation-harness: 8 of 8 answers used.",
    )
    assert "samples_*.jsonl" in refused(summary)


def test_filters_are_scores_of_their_own_and_not_repeats(tmp_path: Path) -> None:
    lines = [lm_eval_row(n, f) for f in ("strict", "flexible") for n in range(1, 5)]
    lines += [lm_eval_row(n, "flexible", exact_match=1.0) for n in (5, 6)]
    path = write_lines(tmp_path / "a.jsonl", lines)
    assert "found: exact_match,flexible, exact_match,strict" in refused(path, metric="exact_match")
    assert len(read(path, metric="exact_match,strict").frame) == 4
    flexible = read(path, metric="exact_match,flexible")
    assert (len(flexible.frame), set(flexible.frame["replicate"])) == (6, {0})
    assert len(read(path, own_score="f1").frame) == 4


def test_prompts_of_old_and_new_harnesses_where_no_document_is_told(tmp_path: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "one two three"}])
    for arguments in (
        [["one two three", {"until": []}]],
        {"gen_args_0": {"arg_0": ["one two three"], "arg_1": {}}},
        {"gen_args_0": {"arg_0": [chat], "arg_1": {}}},
    ):
        lines = [lm_eval_row(n, doc={"query": "?"}, arguments=arguments) for n in (1, 2)]
        records = read(write_lines(tmp_path / "a.jsonl", lines))
        assert set(records.frame["length_tokens"]) == {tokens("one two three")}
        assert "of the whole prompt" in said(records)


def test_the_score_of_ruler_is_that_of_the_document_s_length(tmp_path: Path) -> None:
    lines = [
        lm_eval_row(
            n,
            doc={"input": "x " * n, "max_length": length},
            metrics=["4096", "8192"],
            **{"4096": -1.0, "8192": -1.0, str(length): n / 10},
        )
        for n, length in enumerate((4_096, 8_192, 4_096), start=1)
    ]
    records = read(write_lines(tmp_path / "a.jsonl", lines))
    assert (records.score_name, list(records.frame["score"])) == ("ruler", [0.1, 0.2, 0.3])


# HELMET


def test_results_of_helmet_pool_to_one_model(tmp_path: Path) -> None:
    parts = []
    for length in (8_192, 16_384):
        path = write_helmet(tmp_path / f"kilt_in{length}.json", length, range(1, 6))
        assert "2 scores; found: rougeL_f1, substring_exact_match" in refused(path)
        parts.append((path, [read(path, metric="substring_exact_match")]))
    (whole,) = pooled(parts)
    assert (whole.model, whole.task, len(whole.frame)) == ("org/m", "kilt_nq", 10)
    assert list(whole.frame["length_tokens"])[:2] == [8_191, 8_190]
    assert list(whole.frame["score"])[:2] == [0, 1]
    assert whole.frame["example_id"].nunique() == 10  # the same questions, at another length
    assert "document_id" not in whole.frame
    assert said(whole).count("lengths are manufactured") == 2
    assert "does not say which answers share a document" in said(whole)


def test_tasks_that_are_pooled_stay_categories(tmp_path: Path) -> None:
    parts = []
    for task in ("hotpotqa", "triviaqa"):
        path = tmp_path / "pred" / "some-model" / f"{task}.jsonl"
        row = {"pred": "a", "answers": ["a"], "all_classes": None, "length": len(task)}
        write_lines(path, [row, row])
        parts.append((path, [read(path)]))
    (whole,) = pooled(parts)
    assert whole.task is None
    assert list(whole.frame["task"]) == ["hotpotqa"] * 2 + ["triviaqa"] * 2
    assert "2 tasks are pooled" in said(whole)


def test_pooling_needs_one_measure_and_one_score(tmp_path: Path) -> None:
    helmet = write_helmet(tmp_path / "a.json", 8_192, range(3), "openai/some-model")
    other = write_inspect(tmp_path / "b.eval", [inspect_sample(n) for n in (1, 2)])
    one = read(helmet, metric="rougeL_f1")
    with pytest.raises(ScoreFileError, match=r"different scores \(rougeL_f1; exact\)"):
        pooled([(helmet, [one]), (other, [read(other)])])
    counted = read(other, tokenizer="tiktoken:o200k_base")
    with pytest.raises(ScoreFileError, match="measure length differently"):
        pooled([(helmet, [one]), (other, [counted])])


# LongBench


def test_predictions_of_longbench_are_scored_here_by_words(tmp_path: Path) -> None:
    path = tmp_path / "pred" / "some-model" / "triviaqa.jsonl"
    write_lines(
        path,
        [
            {"pred": "\nRed house\nQuestion: more", "answers": ["the red house"],
             "all_classes": None, "length": 100 * n}
            for n in range(1, 4)
        ],
    )  # fmt: skip
    records = read(path)
    assert (records.model, records.task, records.score_name) == ("some-model", "triviaqa", "f1")
    assert list(records.frame["score"]) == [1, 1, 1]
    assert list(records.frame["length_tokens"]) == [100, 200, 300]
    assert "words in the log" in said(records)
    assert "cuts prompts" in said(records)


def test_classes_of_longbench_are_looked_for_in_the_output(tmp_path: Path) -> None:
    rows = [
        {"pred": "It is a Food question", "answers": ["Food"], "all_classes": ["Food"], "length": n}
        for n in (10, 20)
    ]
    records = read(write_lines(tmp_path / "trec.jsonl", rows))
    assert (records.score_name, set(records.frame["score"])) == ("f1", {1.0})
    assert "by LongBench's rule for this task" in said(records)


def test_longbench_2_needs_its_documents(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "some-model.jsonl", [longbench_2_row(n) for n in range(9)])
    sentence = refused(path)
    assert "9 without a length" in sentence
    assert "--documents" in sentence
    whole = [{"_id": f"id{n}", "context": text(n, 300 + 20 * n)} for n in range(8)]
    for name, content in (
        ("data.json", json.dumps(whole)),
        ("data.jsonl", "\n".join(map(json.dumps, whole))),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        records = read(path, documents=tmp_path / name)
        assert (records.model, records.score_name, records.task) == ("some-model", "judge", None)
        assert list(records.frame["length_tokens"]) == [tokens(row["context"]) for row in whole]
        assert list(records.frame["score"]) == [1] * 5 + [0] * 3
        assert "left out: 1 without a length" in said(records)
    (tmp_path / "other.jsonl").write_text('{"_id": "x", "context": "y"}\n')
    assert "none of the log's documents" in refused(path, documents=tmp_path / "other.jsonl")


# All of them


def test_a_log_is_told_by_its_content(tmp_path: Path) -> None:
    samples = [inspect_sample(n) for n in (1, 2)]
    for found in (
        read(write_inspect(tmp_path / "log.csv", samples)),
        read(write_inspect_json(tmp_path / "log", samples)),
        read(write_helmet(tmp_path / "x.txt", 4_096, range(3)), metric="rougeL_f1"),
        read(write_lines(tmp_path / "y", [lm_eval_row(n) for n in (1, 2)])),
    ):
        assert len(found.frame) >= 2
    lines = write_lines(tmp_path / "z.jsonl", [lm_eval_row(n) for n in (1, 2)])
    packed = tmp_path / "z.jsonl.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    assert len(read(packed).frame) == 2


@pytest.mark.parametrize(
    "content",
    [
        "length_tokens,score\n1,1\n",
        '{"length_tokens": 1, "score": 1, "pred": "x", "answers": ["y"]}\n',
        '[{"length_tokens": 1, "score": 1}]',
        '{\n  "x": 1\n}',
        "{broken",
        "",
    ],
)
def test_what_is_no_log_is_left_to_the_reader_of_tables(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content, encoding="utf-8")
    assert read_log(tmp_path / "a", LogOptions()) is None
    assert read_log(tmp_path / "none", LogOptions()) is None
    assert read_log(tmp_path, LogOptions()) is None


def test_scores_outside_the_scale_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [lm_eval_row(n, exact_match=50.0) for n in (1, 2)])
    assert "2 values of exact_match lie outside 0..1" in refused(path)
    assert set(read(path, scale=100).frame["score"]) == {0.5}


def test_without_a_tokenizer_at_hand_only_lengths_of_the_log_count(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [lm_eval_row(1)])
    with pytest.raises(ScoreFileError, match="open_tokenizer"):
        read_log(path, LogOptions())
    log = write_inspect(tmp_path / "a.eval", [inspect_sample(n) for n in (1, 2)])
    assert read_log(log, LogOptions()) is not None
