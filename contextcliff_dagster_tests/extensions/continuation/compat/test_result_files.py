"""Files of a run: written, read again, and those of earlier versions."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import DataError, ScoreFileError, StudyError
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    LIST_KEYS,
    METRICS,
)
from contextcliff_dagster.extensions.continuation.compat.result_files import (
    file_name,
    read_run,
    start_folder,
    write_run,
)
from contextcliff_dagster.extensions.continuation.compat.runs import reanalysed
from contextcliff_dagster_tests.extensions.continuation.made_runs import (
    AT,
    FAMILIAR,
    OLD_CSV,
    letters,
    made_run,
    write_made_run,
)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = made_run()
    folder = start_folder(tmp_path, run)
    assert not folder.exists()
    assert folder.name == "tiny-1B-river-a_b"
    files = write_run(folder, run, AT)
    assert [path.name for path in files] == [
        "degradation_analysis.json",
        "tiny-1B-river.txt-a_b.csv",
        "tiny-1B-river.txt-a_b_generations.txt",
    ]
    back = read_run(folder)
    assert (back.rounds, back.averages, back.author) == (run.rounds, run.averages, run.author)
    assert (dict(back.metadata), back.context_lengths) == (run.metadata, run.context_lengths)
    with pytest.raises(StudyError, match="another --model-id"):
        start_folder(tmp_path, run)


def test_averages_are_read_from_each_kind_of_file(tmp_path: Path) -> None:
    run = made_run()
    analysis, table, _ = write_run(tmp_path / "run", run, AT)
    for kept in (analysis, table):
        alone = tmp_path / kept.stem
        alone.mkdir()
        (alone / kept.name).write_bytes(kept.read_bytes())
        back = read_run(alone)
        assert back.name == "tiny/1B a b"
        assert not back.rounds
        for size, average in run.averages.items():
            known = {key: back.averages[size][key] for key in METRICS}
            assert known == {key: average[key] for key in METRICS}


def test_files_have_the_keys_and_columns_of_the_reference(tmp_path: Path) -> None:
    folder = write_made_run(tmp_path / "run", rounds=2)
    context = json.loads((folder / "context_2048_results.json").read_text(encoding="utf-8"))
    assert list(context) == [
        *("context_length", "context_info", "generation_params", "num_rounds"),
        *("individual_rounds", "averaged_stats", "timestamp"),
    ]
    metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))
    assert list(metadata) == ["experiment_metadata", "context_lengths", "ground_truth_analysis"]
    analysis = json.loads((folder / "degradation_analysis.json").read_text(encoding="utf-8"))
    assert list(analysis) == [
        *("metadata", "results", "trends", "degradation_points", "analysis_timestamp"),
    ]
    with next(folder.glob("*.csv")).open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    assert columns[:7] == [
        *("model_name", "text_name", "model_id", "max_tokens", "temperature", "top_k", "top_p"),
    ]
    assert columns[7:] == [
        *("round_number", "timestamp", "continuation_text", "reading_level"),
        *("continuation_length", *(name for name in METRICS if name != "reading_level")),
        *("num_rounds", "cloze_score_std", "vocab_diversity_std", "context_length"),
    ]
    texts = next(folder.glob("*_generations.txt")).read_text(encoding="utf-8")
    assert texts.count("Context 2,048, round") == 2
    assert "“Out!”" in texts


def test_the_first_version_of_the_csv_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tiny-1B-middle.txt-3r1d.csv"
    file.write_text(OLD_CSV, encoding="utf-8")
    run = read_run(file)
    assert list(run.averages) == [1024, 2048, 4096]
    assert run.name == "tiny-1B"
    assert run.metadata["generation_params"]["min_p"] == 0.1
    assert "adjacent_coherence" not in run.averages[1024]
    assert (run.averages[2048]["cloze_score"], run.averages[4096]["num_rounds"]) == (29.5, 3)
    assert "cloze_score_std" not in run.averages[2048]


def test_a_figure_that_is_no_number_is_missing(tmp_path: Path) -> None:
    folder = write_made_run(tmp_path / "run", rounds=2)
    file = folder / "context_2048_results.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["individual_rounds"][0]["cloze_score"] = float("nan")
    del content["averaged_stats"]
    file.write_text(json.dumps(content), encoding="utf-8")
    run = read_run(folder)
    assert "cloze_score" not in run.rounds[2048][0]


def test_kept_texts_are_measured_again(tmp_path: Path) -> None:
    run = read_run(write_made_run(tmp_path / "run", rounds=2))
    again = reanalysed(run, FAMILIAR, letters)
    assert (again.rounds, again.averages, again.author) == (run.rounds, run.averages, run.author)
    other = reanalysed(run, frozenset())
    first, before = other.rounds[1024][0], run.rounds[1024][0]
    assert first["pct_unfamiliar_words"] == 1.0
    assert first["word_entropy"] == before["word_entropy"]
    assert other.averages[1024]["cloze_score"] < run.averages[1024]["cloze_score"]
    assert all(first[key] == before[key] for key in COHERENCE_KEYS)
    without = reanalysed(run, None, lambda sentences: [[1.0]] * len(sentences)).rounds[1024][0]
    assert all(without[key] == before[key] for key in LIST_KEYS)
    assert without["adjacent_coherence"] == 1.0
    (tmp_path / "old.csv").write_text(OLD_CSV, encoding="utf-8")
    with pytest.raises(DataError, match="has no texts"):
        reanalysed(read_run(tmp_path / "old.csv"), FAMILIAR)


BAD_CSV = {
    "": "no rows",
    "model_name,context_length\n": "no rows",
    "model_name,cloze_score\nm,3\n": "no context_length",
    "context_length,cloze_score\nmany,3\n": "no context_length",
    "context_length,cloze_score\n0,3\n": "no context_length",
    "context_length,cloze_score\n1024,3\n1024,4\n": "1,024 twice",
    "context_length,price\n1024,3\n": "none of the figures",
    "model_name,context_length,cloze_score\na,1024,3\nb,2048,4\n": "2 runs",
}


@pytest.mark.parametrize("content", BAD_CSV)
def test_a_csv_file_that_is_no_run_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ScoreFileError, match=BAD_CSV[content]):
        read_run(file)


BAD_JSON = {
    "{": "not JSON",
    "[]": "not a JSON object",
    "{}": "neither individual_rounds",
    '{"individual_rounds": 3}': "not a list of objects",
    '{"individual_rounds": [3]}': "not a list of objects",
    '{"averaged_stats": 3}': "neither individual_rounds",
    "[" * 100_000: "nested too deeply",
}


@pytest.mark.parametrize("content", BAD_JSON, ids=range(len(BAD_JSON)))
def test_a_damaged_context_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "context_1024_results.json").write_text(content, encoding="utf-8")
    with pytest.raises(ScoreFileError, match=BAD_JSON[content]):
        read_run(tmp_path)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScoreFileError, match="neither context_N_results"):
        read_run(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(OLD_CSV, encoding="utf-8")
    with pytest.raises(ScoreFileError, match="2 CSV files"):
        read_run(tmp_path)
    with pytest.raises(ScoreFileError, match="No such file"):
        read_run(tmp_path / "none")
    (tmp_path / "latin.csv").write_bytes(b"caf\xe9")
    with pytest.raises(ScoreFileError, match="cannot be read"):
        read_run(tmp_path / "latin.csv")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScoreFileError, match="named pipe"):
        read_run(tmp_path / "pipe")


def test_names_lose_what_a_path_cannot_have() -> None:
    assert file_name("org/m:1\\x", 'a "b"?', "<c>|*") == "org-m-1-x-a_b-c"
