"""`contextcliff analyze` on records: what comes out, whatever the format, order and scale."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.files.score_tables import (
    FORMATS,
    answers,
    conforming,
    without_file,
    write,
)
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call, run

QUICK = ("analyze", "--quick")
"""For claims about what is read and written: the same, without second opinions."""


def test_a_file_of_scores_becomes_a_report_and_a_result(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", answers())
    out, result = tmp_path / "out", tmp_path / "mine.json"
    ended = call("analyze", str(path), "--json", str(result), "--out", str(out), "--window", "8192")
    assert (ended.code, ended.err) == (0, "")
    assert "FAILURE RISK REPORT" in ended.out
    cliffs = conforming(result)
    assert cliffs["verdict"] == "cliff"
    assert 200 < cliffs["safe_cap_tokens"] <= 600
    assert f"Hard cap inference context at {cliffs['safe_cap_tokens']:,} tokens." in ended.out
    assert (cliffs["model"], cliffs["n"], cliffs["n_documents"]) == ("mine", 200, 200)
    assert cliffs["window_tokens"] == 8_192
    for unknown in ("study", "campaign", "task", "tokenizer", "identity", "joint_cap"):
        assert cliffs[unknown] is None
    assert all(b["failures"] is None and b["ttft_ms"] is None for b in cliffs["bins"])
    assert cliffs["provenance"]["file"] == "mine.csv"
    assert {p.name for p in out.iterdir()} >= {"report.md", "report.png", "report.json"}
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "# Scores of mine.csv" in (out / "report.md").read_text("utf-8")
    assert json.loads((out / "report.json").read_text("utf-8"))["models"][0] == cliffs


def test_answers_that_came_in_order_of_length_are_noted(tmp_path: Path) -> None:
    records = answers().sort_values("length_tokens")
    minutes = pd.date_range("2026-03-01", periods=len(records), freq="min")
    in_order = write(tmp_path / "order.csv", records.assign(finished_at=minutes.astype(str)))
    ended = call("analyze", "--quick", str(in_order))
    assert "Note: The answers came in order of length (rank correlation with time 1.00" in ended.out
    untimed = call("analyze", "--quick", str(write(tmp_path / "sorted.csv", records)))
    assert "order of length" not in untimed.out


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_says_the_same(format: str, tmp_path: Path) -> None:
    records = answers(replicates=2).assign(task="lookup", failure=None, ttft_ms=12.5)
    records.loc[:9, "failure"], records.loc[:9, "score"] = "transport_error", None
    plain = write(tmp_path / "plain.csv", records)
    other = write(tmp_path / f"other.{format}", records)
    to = tmp_path / "results"
    # What is read is the same: second opinions on it are asked for once.
    quick = [] if format == "parquet" else ["--quick"]
    ended = call("analyze", str(plain), str(other), "--json", str(to), *quick)
    assert ended.code == 0, ended.err
    one, same = conforming(to / "plain.json"), conforming(to / "other.json")
    assert without_file(one) == without_file(same)
    assert one["missing"]["transport_error"] == 10
    assert one["task"] == "lookup"


@pytest.mark.parametrize("limit", ["2s", "2000ms", "2.0 s"])
def test_a_limit_on_the_first_token_is_judged(limit: str, tmp_path: Path) -> None:
    records = answers()
    timed = records.assign(ttft_ms=100 + records["length_tokens"])
    path = write(tmp_path / "timed.csv", timed)
    ended = call(*QUICK, str(path), "--json", "-", "--ttft-limit", limit)
    found = json.loads(ended.out)["latency_limit"]
    assert found["ttft_ms_p95"] == 2_000
    assert 1_000 < found["tokens"] <= 1_900


@pytest.mark.parametrize("limit", ["2", "0s", "-1s", "nan", "two seconds", "1e9999s", ""])
def test_what_is_no_time_is_no_limit(limit: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", answers())
    ended = call(*QUICK, str(path), "--ttft-limit", limit)
    assert ended.code == 2
    assert "is not a time; use 2s or 2000ms." in ended.err


def test_a_limit_on_times_that_are_not_there_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.csv", answers())
    ended = call(*QUICK, str(path), "--ttft-limit", "2s")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "has no times to the first token of mine (column ttft_ms)" in ended.err
    table = call("analyze", str(path), "--aggregated", "--ttft-limit", "2s")
    assert table.code == 2
    assert "--ttft-limit takes single answers" in table.err


def test_nothing_but_a_length_and_a_score_is_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.parquet", answers()[["score", "length_tokens"]])
    ended = call("analyze", str(path), "--json", "-")
    cliffs = json.loads(ended.out)
    assert (cliffs["verdict"], cliffs["n_documents"]) == ("cliff", None)


FEW_EXAMPLES = examples(5)


@FEW_EXAMPLES
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_order_of_rows_does_not_matter(tmp_path: Path, seed: int, named: bool) -> None:
    records = answers(graded=True, per_bin=6)
    if not named:
        records = records[["length_tokens", "score"]]
    shuffled = records.sample(frac=1.0, random_state=seed)
    write(tmp_path / "a.csv", records)
    write(tmp_path / "b.csv", shuffled)
    to = tmp_path / "to"
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert call(*QUICK, *files, "--json", str(to)).code == 0
    assert without_file(conforming(to / "a.json")) == without_file(conforming(to / "b.json"))


@FEW_EXAMPLES
@given(st.integers(0, 1_000), st.sampled_from([5.0, 10.0, 100.0, 1_000.0]))
def test_a_scale_changes_nothing(tmp_path: Path, seed: int, scale: float) -> None:
    records = answers(seed, graded=True, per_bin=6).round({"score": 4})
    write(tmp_path / "a.csv", records)
    scaled = [repr(round(score * scale, 8)) for score in records["score"]]
    write(tmp_path / "b.csv", records.assign(score=scaled))
    to = tmp_path / "to"
    assert call(*QUICK, str(tmp_path / "a.csv"), "--json", f"{to}/").code == 0
    scaled_too = ("--scale", f"{scale:g}", str(tmp_path / "b.csv"), "--json", f"{to}/")
    assert call(*QUICK, *scaled_too).code == 0
    assert without_file(conforming(to / "a.json")) == without_file(conforming(to / "b.json"))


def test_tolerance_and_confidence_are_the_users(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.csv", answers()))
    strict = json.loads(
        call(*QUICK, path, "--json", "-", "--tolerance", "10%", "--confidence", ".99").out
    )
    assert (strict["tolerance"], strict["confidence"]) == (0.1, 0.99)
    usual = json.loads(call(*QUICK, path, "--json", "-").out)
    assert (strict["safe_cap_tokens"] or 0) <= usual["safe_cap_tokens"]
    wary = json.loads(call(*QUICK, path, "--json", "-", "--assumption", "any").out)
    assert wary["recovery"]["assumption"] == "any"
    assert wary["safe_cap_tokens"] == wary["recovery"]["cap_tokens"]
    assert call("analyze", path, "--tolerance", "much").code == 2


def two_models() -> pd.DataFrame:
    short = answers(1, 300).assign(model="short/1")
    return pd.concat([short, answers(2, 2_000).assign(model="long")])


def test_each_model_by_itself_or_one_of_them(tmp_path: Path) -> None:
    path = str(write(tmp_path / "both.jsonl", two_models()))
    listed = tmp_path / "both.json"
    ended = call(*QUICK, path, "--by", "model", "--json", str(listed))
    assert ended.code == 0, ended.err
    assert "COMPARISON:" in ended.out
    long, short = conforming(listed)
    assert (long["model"], short["model"]) == ("long", "short/1")
    assert long["safe_cap_tokens"] > short["safe_cap_tokens"]
    assert call(*QUICK, path, "--by", "model", "--json", f"{tmp_path}/dir/").code == 0
    names = sorted(p.name for p in (tmp_path / "dir").iterdir())
    assert names[0] == "both.long.json"
    assert names[1].startswith("both.short-1")
    only = json.loads(call(*QUICK, path, "--model", "long", "--json", "-").out)
    assert without_file(only) == without_file(long)


def test_model_names_the_one_of_a_file_that_names_none(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.csv", answers()))
    named = json.loads(call(*QUICK, path, "--model", "mine", "--json", "-").out)
    assert named["model"] == "mine"


def test_several_files_are_compared_in_one_report(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", answers(1, 300))
    other = write(tmp_path / "other.jsonl.gz", answers(2, 2_000))
    ended = call("analyze", str(one), str(other), "--out", str(tmp_path / "out"))
    assert ended.code == 0
    page = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "| `one` | cliff |" in page
    assert "| `other` | cliff |" in page
    assert "Safe cap: one " in page


@pytest.mark.parametrize("kind", ["png", "pdf", "svg", "csv", "parquet", "json", "html", "md"])
def test_out_writes_one_file_of_all_models_by_its_suffix(kind: str, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.csv", answers(i, 300 * i)) for i, n in enumerate("ab", 1)]
    target = tmp_path / f"result.{kind}"
    ended = call(*QUICK, *map(str, files), "--out", str(target))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(f"Written: {target}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "b.csv", target.name}
    if kind == "csv":
        assert pd.read_csv(target)["model"].to_list() == ["a", "b"]
    elif kind == "json":
        assert [one["model"] for one in json.loads(target.read_bytes())] == ["a", "b"]
    elif kind in ("html", "md", "svg"):
        assert "safe" in target.read_text("utf-8")


def test_out_of_another_suffix_is_refused_before_a_file_is_read(tmp_path: Path) -> None:
    ended = call(*QUICK, "nosuch.csv", "--out", str(tmp_path / "a.docx"))
    assert_one_sentence(ended, "a.docx", ".png, .pdf, .svg, .csv, .parquet, .json, .html, .md")
    assert "nosuch" not in ended.err
    assert not list(tmp_path.iterdir())


def test_too_few_rows_are_a_verdict_and_no_fault(tmp_path: Path) -> None:
    path = write(tmp_path / "few.csv", answers().head(12))
    ended = call("analyze", str(path))
    assert ended.code == 0
    assert "[INSUFFICIENT DATA]" in ended.out


def test_identifiers_keep_their_letters(tmp_path: Path) -> None:
    """007 and 7 are two documents."""
    rows = [
        {"document_id": name, "length_tokens": 100 + i, "score": i % 2}
        for i, name in enumerate(["7", "007"] * 30)
    ]
    path = write(tmp_path / "ids.csv", rows)
    assert json.loads(call(*QUICK, str(path), "--json", "-").out)["n_documents"] == 2


def test_it_starts_without_dagster_and_without_a_store(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", answers())
    home = tmp_path / "home"
    ended = run(
        "analyze", str(path), env={"CONTEXTCLIFF_HOME": str(home), "PYTHONPROFILEIMPORTTIME": "1"}
    )
    assert ended.code == 0
    assert "FAILURE RISK REPORT" in ended.out
    imported = {line.split("|")[-1].strip() for line in ended.err.splitlines() if "|" in line}
    assert "numpy" in imported
    assert not imported & {"dagster", "matplotlib", "torch", "openai", "aiohttp"}
    assert not home.exists()


def test_the_schema_is_met_even_by_odd_columns(tmp_path: Path) -> None:
    """Columns that mean something else to others are left aside, or only told apart."""
    records = answers().assign(bin="b07", replicate="wording A", em="yes", study=3, n=7, tags="[]")
    path, result = write(tmp_path / "odd.parquet", records), tmp_path / "odd.json"
    assert call(*QUICK, str(path), "--json", str(result)).code == 0
    plain, same = write(tmp_path / "plain.csv", answers()), tmp_path / "same.json"
    assert call(*QUICK, str(plain), "--json", str(same)).code == 0
    assert without_file(conforming(result)) == without_file(conforming(same))


def test_places_distances_and_levels_of_a_file_are_analysed(tmp_path: Path) -> None:
    rows = answers()
    level = [1 + i % 2 for i in range(len(rows))]
    rows = rows.assign(
        level=level,
        evidence_position=[(7 * i % 100) / 100 for i in range(len(rows))],
        inter_evidence_tokens=[i * 3 if v > 1 else None for i, v in enumerate(level)],
    )
    path, result = write(tmp_path / "places.csv", rows), tmp_path / "places.json"
    assert call("analyze", str(path), "--json", str(result)).code == 0
    checked = conforming(result)
    assert checked["by_position"]["n"] == len(rows)
    assert checked["by_distance"]["n"] == level.count(2)
    assert [one["name"] for one in checked["levels"]] == ["simple", "complex"]
    bad = write(tmp_path / "bad.csv", rows.assign(inter_evidence_tokens=-1))
    ended = call(*QUICK, str(bad))
    assert ended.code == 2
    assert "inter_evidence_tokens" in ended.err


def test_a_models_name_is_in_its_files_name_as_it_is(tmp_path: Path) -> None:
    names = ("Gemma 3 27B (it)", "ünïcode b 😀", "org/model", "..", "x" * 300)
    frames = [two_models().assign(model=name) for name in names]
    path = tmp_path / "all.csv"
    pd.concat(frames).to_csv(path, index=False)
    ended = call("analyze", str(path), "--by", "model", "--json", f"{tmp_path}/out/", "--quick")
    assert ended.code == 0, ended.err
    written = sorted((tmp_path / "out").iterdir())
    assert {json.loads(file.read_text("utf-8"))["model"] for file in written} == set(names)
    assert {f"all.{name}.json" for name in names[:2]} < {file.name for file in written}


def test_a_failure_tag_is_a_failure(tmp_path: Path) -> None:
    frame = answers(1, 300)
    frame["failure"] = ["refusal" if i % 4 == 0 else "" for i in range(len(frame))]
    path = tmp_path / "tags.csv"
    frame.to_csv(path, index=False)
    ended = call("analyze", str(path), "--json", "-", "--quick")
    bins = json.loads(ended.out)["bins"]
    failures = sum(row["failures"]["refusal"] for row in bins)
    assert failures == (len(frame) + 3) // 4
    assert sum(row["failure_rate"] * row["n"] for row in bins) == pytest.approx(failures)


@pytest.mark.parametrize("scale", ["nan", "inf"])
def test_a_scale_is_a_number(scale: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    two_models().to_csv(path, index=False)
    ended = call("analyze", str(path), "--scale", scale)
    assert ended.code == 2
    assert "--scale" in ended.err


def test_a_place_of_the_evidence_lies_in_the_document(tmp_path: Path) -> None:
    frame = answers(1, 300).assign(evidence_position=0.5)
    frame.loc[3, "evidence_position"] = 50.0
    ended = call(*QUICK, str(write(tmp_path / "places.csv", frame)))
    assert ended.code == 2
    (said,) = ended.sentences
    assert "evidence_position" in said
    assert "50" in said


def test_every_file_that_is_written_is_named(tmp_path: Path) -> None:
    path = str(write(tmp_path / "scores.csv", answers(1, 300)))
    for options in ((), ("--quick",)):
        ended = call("analyze", path, "--out", str(tmp_path / "out"), *options)
        named = {
            Path(line.split(": ", 1)[1]).name
            for line in ended.out.splitlines()
            if line.startswith("Written: ")
        }
        assert named == {file.name for file in (tmp_path / "out").iterdir()}


def test_losses_are_measured_above_what_guessing_scores(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    rows = [f"{1_000 + 400 * row},{int(row % 10 < 3)}" for row in range(200)]
    file.write_text("length_tokens,score\n" + "\n".join(rows))
    ended = call("analyze", str(file), "--quick", "--chance", "25%", "--json", "-")
    result = json.loads(ended.out)
    assert (ended.code, result["verdict"], result["chance"]) == (0, "floor", 0.25)
    folder = str(tmp_path / "out")
    both = str(file), str(file)
    ended = call("compare", *both, "--chance", ".25", "--out", folder, "--json")
    assert ended.code == 0
    assert json.loads(ended.out)["loss_shift"]["ratio"] is None, "nothing to lose"
    ended = call("analyze", str(file), "--chance", "1")
    assert ended.code == 2
    assert "'chance' is 1.0; choose 0 to 0.9" in ended.err
