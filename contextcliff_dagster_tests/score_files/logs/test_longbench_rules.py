"""LongBench's predictions: the rule of each data set; words are not pooled with characters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files import pooled
from contextcliff_dagster.score_files.logs.answers import LogOptions
from contextcliff_dagster.score_files.logs.collect import read_log
from contextcliff_dagster.score_files.reader import read_scores
from contextcliff_dagster.score_files.records import ScoreRecords
from contextcliff_dagster_tests.support.files.benchmark_files import write_lines


def rows_of(answer: str, *outputs: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"pred": output, "answers": [answer], "all_classes": None, "length": 100 * n, **more}
        for n, output in enumerate(outputs, start=1)
    ]


def read(path: Path, rows: list[dict[str, Any]]) -> ScoreRecords:
    records = read_log(write_lines(path, rows), LogOptions())
    assert records is not None
    return records


@pytest.mark.parametrize(
    ("task", "answer", "scores"),
    [
        ("passage_retrieval_en", "Paragraph 15",
         {"Paragraph 15": 1, "Paragraph 20": 0, "Paragraph 15 or 20": 0.5}),
        ("passage_retrieval_zh", "段落15", {"段落15": 1, "段落20": 0}),
        ("passage_count_e", "7", {"7": 1, "There are 7 of 8": 0.5, "seven": 0}),
        ("triviaqa", "Red house", {"red house\nQuestion: more": 1, "red": 2 / 3}),
        # As logged: the published script removes no label, reasoning or quotes.
        ("2wikimqa", "Paris", {"Answer: Paris": 2 / 3, "<think>x</think> Paris": 2 / 3,
                               '"Paris"': 1, "</s>Paris": 0}),
        ("triviaqa_e", "Paris", {"Answer: Paris\nParis": 2 / 3, " \nParis": 0}),
        ("multifieldqa_zh", "厦门大学。", {"厦门大学": 1, "北京大学": 0.5}),
    ],
)  # fmt: skip
def test_predictions_have_the_score_of_their_data_set(
    task: str, answer: str, scores: dict[str, float], tmp_path: Path
) -> None:
    records = read(tmp_path / f"{task}.jsonl", rows_of(answer, *scores))
    assert list(records.frame["score"]) == pytest.approx(list(scores.values()))
    own = any("by LongBench's rule for this task" in note for note in records.notes)
    assert own == (task != "multifieldqa_zh")


def test_labels_are_counted_in_the_first_line(tmp_path: Path) -> None:
    classes = {"all_classes": ["City", "Food", "Fast Food"]}
    rows = rows_of("Fast Food", "Fast Food", "City, Fast Food", "Food", **classes)
    assert list(read(tmp_path / "trec.jsonl", rows).frame["score"]) == [1, 0.5, 0]


def test_words_and_characters_are_never_pooled(tmp_path: Path) -> None:
    paths = {
        "qasper.jsonl": rows_of("winter", "winter", "summer"),
        "multifieldqa_zh.jsonl": rows_of("厦门大学。", "厦门大学", "北京大学"),
        "lsht.jsonl": rows_of("军事", "军事", "体育", all_classes=["军事", "体育"]),
        "mine.jsonl": rows_of("北京", "北京", "上海"),
    }
    parts = {name: (tmp_path / name, [read(tmp_path / name, rows)]) for name, rows in paths.items()}
    kinds = {name: one.length_kind for name, (_, (one,)) in parts.items()}
    assert kinds == {**dict.fromkeys(paths, "characters"), "qasper.jsonl": "words"}
    for name in list(paths)[1:]:
        with pytest.raises(ScoreFileError, match=r"length differently \(words; characters\)"):
            pooled([parts["qasper.jsonl"], parts[name]])
    (both,) = pooled([parts["multifieldqa_zh.jsonl"], parts["mine.jsonl"]])
    assert len(both.frame) == 4
    assert any("characters" in note for note in both.notes)


def test_a_file_of_both_languages_keeps_to_the_first(tmp_path: Path) -> None:
    rows = [
        *rows_of("winter", "winter", "summer", dataset="qasper"),
        *rows_of("厦门大学。", "厦门大学", dataset="multifieldqa_zh"),
    ]
    records = read(tmp_path / "all.jsonl", rows)
    assert len(records.frame) == 2
    assert "1 whose lengths do not count words" in records.notes[0]


def test_tokens_of_two_tokenizers_are_never_pooled(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        rows = [{"length_tokens": n, "score": 1, "tokenizer": name} for n in (10, 20)]
        path = write_lines(tmp_path / f"{name}.jsonl", rows)
        files.append((path, read_scores(path, LogOptions())))
    with pytest.raises(ScoreFileError, match=r"counts tokens with a, .*b\.jsonl with b"):
        pooled(files)
    assert len(pooled([files[0], files[0]])[0].frame) == 4
