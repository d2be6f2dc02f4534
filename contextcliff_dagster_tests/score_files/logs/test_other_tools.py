"""Results of BABILong, OpenCompass and HELM, in files that we write in their formats."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.cli.score_analysis import AnalyzeOptions, analyze_files
from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.score_files import (
    LogOptions,
    ScoreFileError,
    ScoreRecords,
    read_log,
    read_records,
)
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.files.log_files import small_tokenizer, text

PLAIN = LogOptions(open_tokenizer=small_tokenizer)


def read(path: Path, **options: Any) -> ScoreRecords:
    records = read_log(path, LogOptions(open_tokenizer=small_tokenizer, **options))
    assert records is not None
    return records


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ScoreFileError) as caught:
        read(path, **options)
    return str(caught.value)


def written(path: Path, value: Any, indent: int | None = 4) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    return path


# BABILong

ANSWERS = [
    ("kitchen", "Answer: John is in the kitchen. He was in the garden.", "Where is John? ", 1.0),
    ("kitchen", "Kitchen or garden.", "Where is John? ", 0.0),
    ("kitchen", "<think>garden?</think> kitchen", "Where is John? ", 0.0),
    ("garden", "The garden, after the kitchen", "Where was John before the kitchen?", 1.0),
    ("office", "<example>office", "Where is John? ", 0.0),
    ("office", "", "Where is John? ", 0.0),
]


def write_babilong(path: Path, rows: list[tuple[str, str, str, float]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("", "target", "output", "question")] + [(n, *row[:3]) for n, row in enumerate(rows)]  # type: ignore[list-item]
        )
    return path


def test_results_of_babilong_are_scored_by_its_rule(tmp_path: Path) -> None:
    name = "qa1_16k_instruction_yes_examples_yes_post_prompt_yes.csv"
    records = read(write_babilong(tmp_path / "babilong_evals/org/some-model" / name, ANSWERS))
    assert records.frame["score"].tolist() == [right for *_, right in ANSWERS]
    assert set(records.frame["length_tokens"]) == {16 * 1024}
    assert (records.model, records.task, records.score_name) == (
        "org/some-model",
        "qa1",
        "babilong",
    )
    assert any("manufactured" in note for note in records.notes)
    assert records.frame["document_id"].is_unique


def test_sizes_of_babilong_pool_to_one_model_and_0k_is_left_out(tmp_path: Path) -> None:
    from contextcliff_dagster.analysis.records import AnalysisSettings

    paths = [
        write_babilong(tmp_path / f"qa1_{size}_x.csv", ANSWERS * 4)
        for size in ("0k", "1k", "2k", "1M")
    ]
    errors: list[ContextCliffError] = []
    settings = AnalysisSettings(second_opinions=False)
    (analyzed,) = analyze_files(paths, AnalyzeOptions(settings, log=PLAIN), errors)
    assert not errors
    assert analyzed.result.n == 72
    assert analyzed.answers is not None
    assert set(analyzed.answers["length_tokens"]) == {1024, 2048, 1 << 20}
    assert any("qa1_0k_x.csv" in note and "24 at 0k" in note for note in analyzed.result.warnings)


def test_a_task_of_babilong_without_a_rule_is_scored_here(tmp_path: Path) -> None:
    rows = [("apple,milk", "apple, milk", "What is John carrying?", 1.0)] * 2
    records = read(write_babilong(tmp_path / "qa21_4k.csv", rows))
    assert records.score_name == "contained"
    assert any(note.startswith("Scored here") for note in records.notes)


def test_the_name_of_the_file_makes_it_babilong_s(tmp_path: Path) -> None:
    path = write_babilong(tmp_path / "answers.csv", ANSWERS)
    assert read_log(path, PLAIN) is None


def test_results_of_babilong_without_questions_are_scored_here_and_say_why(tmp_path: Path) -> None:
    path = tmp_path / "qa1_16k_x.csv"
    path.write_text(",target,output\n0,office,The office.\n1,garden,A kitchen\n", encoding="utf-8")
    records = read(path)
    assert (records.score_name, records.frame["score"].tolist()) == ("contained", [1.0, 0.0])
    assert any("has no column 'question', which BABILong's" in note for note in records.notes)
    path.write_text("length_tokens,score\n1,1\n", encoding="utf-8")
    assert read_log(path, PLAIN) is None


# OpenCompass


@pytest.mark.parametrize("long", ["", "word " * 20_000])
@pytest.mark.parametrize(
    "more",
    [
        {"details": {"a": 1}},
        {"details": [{"a": 1}]},
        {"notes": {"details": {"0": {"pred": "x"}}}},
        {"eval": {"run_id": "1"}, "status": "success"},
        {"input_max_length": 9},
        {"request_states": [], "scenario_spec": {}, "prediction": "x", "origin_prompt": "y"},
    ],
)
def test_a_table_may_have_fields_named_as_in_logs(
    more: dict[str, Any], long: str, tmp_path: Path
) -> None:
    from contextcliff_dagster.score_files.reader import read_scores

    rows = [
        {"args": n, "length_tokens": 100 * n, "score": 1.0, "text": long, **more} for n in (1, 2)
    ]
    path = tmp_path / "results" / "m" / "mine.jsonl"
    path.parent.mkdir(parents=True)
    for count in (1, 2):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[:count]))
        if count == 1 and (long or "eval" in more or list(more.get("details", ())) == [{"a": 1}]):
            continue  # such an object alone may as well be a log
        assert read_log(path, PLAIN) is None
        (records,) = read_scores(path, PLAIN)
        assert list(records.frame["length_tokens"]) == [100, 200][:count]


def test_a_log_of_another_tool_may_have_details_in_its_documents(tmp_path: Path) -> None:
    row = {"doc": {"context": text(1, 9), "details": {"0": {}}}, "resps": [["x"]], "acc": 1.0,
           "metrics": ["acc"]}  # fmt: skip
    path = tmp_path / "samples_x_2026.jsonl"
    path.write_text("".join(f"{json.dumps({'doc_id': n, **row})}\n" for n in range(3)))
    assert len(read(path).frame) == 3


def predictions(numbers: range) -> dict[str, Any]:
    return {
        str(place): {
            "origin_prompt": text(n, 10 * n)
            if n % 2
            else [{"role": "HUMAN", "prompt": text(n, 10 * n)}],
            "prediction": f"{n} crates",
            "gold": [str(n), f"{n} crates" if n < 5 else "none"],
        }
        for place, n in enumerate(numbers)
    }


def details(numbers: range) -> dict[str, Any]:
    return {
        str(place): {"pred": str(n), "answer": str(n), "correct": n < 5}
        for place, n in enumerate(numbers)
    }


def test_results_of_opencompass_take_their_texts_from_the_predictions(tmp_path: Path) -> None:
    numbers = range(1, 9)
    run = tmp_path / "20260101_120000"
    known = written(
        run / "results/some-model/crates.json",
        {"accuracy": 50.0, "details": {"type": "GEN", **details(numbers)}},
    )
    named = written(run / "predictions/some-model/crates.json", predictions(numbers))
    records, same = read(known), read(named)
    assert records.frame.equals(same.frame)
    assert records.frame["score"].tolist() == [1.0] * 4 + [0.0] * 4
    assert (records.model, records.task, records.score_name) == ("some-model", "crates", "correct")
    assert records.frame["length_tokens"].is_monotonic_increasing
    assert any("max_seq_len" in note for note in records.notes)


def test_predictions_of_opencompass_in_parts_and_details_of_several_runs(tmp_path: Path) -> None:
    numbers = range(1, 7)
    folder = tmp_path / "predictions/m"
    twice = list(predictions(numbers).values()) * 2
    for part in (0, 1):
        half = twice[6 * part : 6 * (part + 1)]
        written(folder / f"d_{part}.json", {str(n): one for n, one in enumerate(half)})
    runs = [
        {"example_abbr": f"crates_{n}", "pred": ["a", "b"], "correct": [n < 3, n < 5]}
        for n in numbers
    ]
    records = read(written(tmp_path / "results/m/d.json", {"accuracy": 50.0, "details": runs}))
    assert len(records.frame) == 12
    assert records.frame["score"].sum() == 2 + 4
    assert records.frame["example_id"].nunique() == 6
    assert sorted(set(records.frame["replicate"])) == [0, 1]


def test_predictions_alone_are_scored_here_and_a_summary_says_what_is_missing(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "predictions/m/d.json", predictions(range(1, 9)))
    records = read(path, own_score="em")
    assert records.frame["score"].tolist() == [1.0] * 4 + [0.0] * 4
    summary = written(tmp_path / "results/m/d.json", {"accuracy": 50.0, "em": 1})
    assert "--dump-eval-details" in refused(summary)
    formatted = {
        str(n): {"prompt": text(n, 10 * n), "predictions": "4", "references": "['4', 'four']"}
        for n in range(4)
    }
    path = written(tmp_path / "results/m/e.json", {"details": {"type": "GEN", **formatted}})
    assert read(path).frame["score"].tolist() == [1.0] * 4


def test_answers_chosen_by_perplexity_have_their_prompts_with_the_labels(tmp_path: Path) -> None:
    def labels(n: int) -> dict[str, Any]:
        """As `PPLInferencerOutputHandler.save_prompt_and_ppl` writes them."""
        return {
            f"label: {label}": {
                "testing input": "?",
                "prompt": f"{text(n, 10 * n)} {label}",
                "PPL": 1.5,
            }
            for label in "AB"
        }

    numbers = range(1, 9)
    right = {str(n): {"predictions": "A", "references": "A", "correct": n < 5} for n in numbers}
    chosen = {n: {**one, "origin_prediction": labels(int(n))} for n, one in right.items()}
    details = {"accuracy": 50.0, "details": {"type": "PPL", **chosen}}
    records = read(written(tmp_path / "results/m/d.json", details))
    assert records.frame["score"].tolist() == [1.0] * 4 + [0.0] * 4
    assert records.frame["length_tokens"].is_monotonic_increasing
    predictions = {
        str(n): {**labels(600 * n), "prediction": "A", "gold": "A" if n < 3 else "B"}
        for n in numbers
    }
    alone = read(written(tmp_path / "predictions/m/e.json", predictions), own_score="em")
    assert alone.frame["score"].tolist() == [1.0] * 2 + [0.0] * 6
    assert alone.frame["length_tokens"].is_monotonic_increasing


def test_details_without_a_text_name_the_file_that_has_them(tmp_path: Path) -> None:
    path = written(tmp_path / "results/m/d.json", {"details": details(range(1, 5))})
    assert "predictions/<model>/, which is not there" in refused(path)


# HELM


def stat(name: str, mean: float) -> dict[str, Any]:
    return {"name": {"name": name, "split": "test"}, "count": 1, "sum": mean, "mean": mean}


def write_helm(folder: Path, numbers: range, *, state: bool = True) -> Path:
    stats: list[dict[str, Any]] = []
    for n in numbers:
        one = {"instance_id": f"id{n}", "train_trial_index": 0}
        stats.append({**one, "stats": [stat("exact_match", n < 5), stat("num_references", 1)]})
        lengths = [stat("num_prompt_tokens", 100 * n), stat("prompt_truncated", n == 8)]
        stats.append({**one, "stats": lengths})
    typos = {"perturbation": {"name": "typos", "robustness": True}}
    stats.append({**stats[0], **typos})
    states = [
        {
            "instance": {
                "input": {"text": text(n, 10 * n)},
                "references": [{"output": {"text": str(n)}, "tags": ["correct"]}],
                "id": f"id{n}",
            },
            "train_trial_index": 0,
            "request": {"prompt": text(n, 10 * n) + "\nHow many?"},
            "result": {"success": n != 7, "completions": [{"text": f" {n if n < 3 else 0}"}]},
            "prompt_truncated": n == 8,
        }
        for n in numbers
    ]
    written(
        folder / "run_spec.json",
        {
            "name": "crates:model=org_m",
            "scenario_spec": {"class_name": "helm.benchmark.scenarios.crates.CratesScenario"},
            "adapter_spec": {"model": "org/m"},
        },
        indent=2,
    )
    written(folder / "stats.json", [stat("exact_match", 0.5)], indent=2)
    written(folder / "instances.json", [one["instance"] for one in states], indent=2)
    if state:
        adapter = {"method": "generation", "model": "org/m"}
        whole = {"adapter_spec": adapter, "request_states": states}
        written(folder / "scenario_state.json", whole, indent=2)
    return written(folder / "per_instance_stats.json", stats, indent=2)


def test_a_run_of_helm_has_scores_and_lengths_by_answer(tmp_path: Path) -> None:
    records = read(write_helm(tmp_path, range(1, 9)))
    assert (records.model, records.task, records.score_name) == ("org/m", "Crates", "exact_match")
    assert records.frame["length_tokens"].tolist() == [100 * n for n in range(1, 8)]
    assert records.frame["score"].tolist() == [1.0] * 4 + [0.0] * 3
    assert records.length_kind == "prompt tokens"
    (used,) = (note for note in records.notes if "answers used" in note)
    assert "7 of 9" in used
    assert "1 to prompts that were cut to fit the model's window" in used
    assert "1 to questions that were perturbed" in used


def test_prompts_of_helm_are_counted_and_scored_here_where_asked(tmp_path: Path) -> None:
    path = write_helm(tmp_path, range(1, 9))
    counted = read(path, tokenizer="reference")
    assert counted.score_name == "exact_match"
    assert counted.length_kind == "reference"
    assert counted.frame["length_tokens"].is_monotonic_increasing
    assert len(counted.frame) == 6  # one request failed, one prompt was cut
    scored = read(tmp_path / "scenario_state.json", own_score="em")
    assert scored.frame["score"].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    bare = write_helm(tmp_path / "bare", range(1, 5), state=False)
    assert "scenario_state.json, which is not next to it" in refused(bare, tokenizer="reference")


@pytest.mark.parametrize("name", ["stats.json", "instances.json", "run_spec.json"])
def test_other_files_of_a_helm_run_name_the_one_to_read(name: str, tmp_path: Path) -> None:
    write_helm(tmp_path, range(1, 3))
    assert "name the per_instance_stats.json next to it" in refused(tmp_path / name)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.text(max_size=5)
    | st.sampled_from(["[{[]: 1}]", "[1j]", "[" * 500, "0"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["0", "text", "name", "prompt", "stats"]), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside ``value``."""
    inside = value.items() if isinstance(value, dict) else []
    inside = enumerate(value) if isinstance(value, list) else inside
    return [path, *(place for key, one in inside for place in places(one, (*path, key)))]


@examples(150)
@given(st.data())
def test_any_json_in_any_place_of_these_logs_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Never an error of another kind, wherever the tools, or others, put something odd."""
    folder = tmp_path_factory.mktemp("run")
    helm = write_helm(folder, range(1, 4))
    runs = [{"example_abbr": "a_0", "pred": ["a"], "correct": [True]}]
    results, answers = folder / "results/m/d.json", folder / "predictions/m/d.json"
    written(results, {"accuracy": 50.0, "details": runs})
    written(answers, predictions(range(1, 4)))
    named = data.draw(
        st.sampled_from([helm, helm.with_name("scenario_state.json"), results, answers])
    )
    spoiled = data.draw(st.sampled_from([*folder.glob("*.json"), results, answers]))
    value = json.loads(spoiled.read_text("utf-8"))
    *way, last = data.draw(st.sampled_from(places(value)[1:]))
    inner = value
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(ANY_JSON)
    written(spoiled, value)
    options = data.draw(st.sampled_from([{}, {"own_score": "em"}, {"tokenizer": "reference"}]))
    with suppress(ScoreFileError):
        read_log(named, LogOptions(open_tokenizer=small_tokenizer, **options))


# Columns of other names


def test_columns_of_other_names_are_read_by_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "judged.csv"
    path.write_text("id,token_count,score,judge\nx,10,9,True\ny,20,9,false\n", encoding="utf-8")
    columns = {"length_tokens": "token_count", "score": "judge", "example_id": "id"}
    (records,) = read_records(path, columns=columns)
    assert records.frame["score"].tolist() == [1.0, 0.0]
    assert records.frame["length_tokens"].tolist() == [10, 20]
    assert records.frame["example_id"].tolist() == ["x", "y"]
    with pytest.raises(ScoreFileError, match="add --columns length_tokens=ITS_NAME"):
        read_records(path)
    with pytest.raises(ScoreFileError, match="no column 'jugde', which --columns takes as 'score'"):
        read_records(path, columns={**columns, "score": "jugde"})
    with pytest.raises(ScoreFileError, match="names 'points', which is not a known column"):
        read_records(path, columns={**columns, "points": "judge"})
    path.write_text("token_count,judge\n10,right\n20,wrong\n", encoding="utf-8")
    with pytest.raises(ScoreFileError, match=r"row 1 \(and 1 more\): judge \(score\) is 'right'"):
        read_records(path, columns={"length_tokens": "token_count", "score": "judge"})
