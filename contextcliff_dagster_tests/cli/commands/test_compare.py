"""`compare`: the small model against the large one, from what is measured, without a call."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts.results.comparison import KvPolicy
from contextcliff_dagster.experiments.length_profile import profile_and_report
from contextcliff_dagster_tests.support.files.log_files import inspect_sample, write_inspect
from contextcliff_dagster_tests.support.measured_stores import copy_of_quick
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, ramp
from contextcliff_dagster_tests.support.records.profiles import schema
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

PAIR = ("reference-short", "reference-long")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`quick` in two campaigns; in the second one model only."""
    store = str(copy_of_quick(tmp_path_factory))
    for line in (
        "campaign new quick --name again",
        "profile quick --model reference-short --samples-per-bin 4",
    ):
        ended = call(*line.split(), "--store", store)
        assert ended.code == 0, ended.err
    return store


def test_small_against_large_in_one_sentence_and_a_picture(store: str, tmp_path: Path) -> None:
    begun = call("campaign", "list", "quick", "--json", "--store", store)
    first = json.loads(begun.out)[0]["campaign"]
    args = ("compare", *PAIR, "--study", "quick", "--campaign", first, "--store", store)
    ended = call(*args, "--out", str(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    assert "reference-long scores higher than reference-short" in ended.out
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "comparison.md").read_text()
    assert "| `b02` |" in text
    result = json.loads((tmp_path / "comparison.json").read_text())
    schema("comparison").validate(result)
    assert result["loss_shift"]["ratio"] > 2
    assert json.loads(call(*args, "--json").out)["sentence"] == result["sentence"]


@pytest.fixture
def kv_campaign(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The first campaign of `quick`, whose models pass for a KV policy and the whole cache."""
    short, long = PAIR
    policies = {long: KvPolicy("m", "none"), short: KvPolicy("m", "snapkv", 0.5)}
    monkeypatch.setattr(profile_and_report, "policy_of", policies.get)
    first = json.loads(call("campaign", "list", "quick", "--json", "--store", store).out)[0]
    return str(first["campaign"])


@pytest.mark.parametrize("names", [PAIR, PAIR[::-1]])
def test_a_kv_policy_is_compared_with_the_whole_cache_whichever_is_named_first(
    store: str, names: tuple[str, str], kv_campaign: str
) -> None:
    short, long = PAIR
    where = ("--study", "quick", "--campaign", kv_campaign, "--store", store)
    result = json.loads(call("compare", *names, *where, "--json").out)
    assert (result["a"]["name"], result["b"]["name"]) == (long, short)
    assert result["caps"]["a_tokens"] > result["caps"]["b_tokens"]
    assert (result["kv"]["policy_a"], result["kv"]["policy"]) == ("none", "snapkv")


def test_a_cap_against_the_whole_cache_comes_before_a_policy_s_own(
    store: str, kv_campaign: str
) -> None:
    args = ("report", "quick", "--campaign", kv_campaign, "--store", store)
    out = call(*args).out
    assert out.count("KV POLICIES: m") == 1
    assert out.index("KV POLICIES: m") < out.index("FAILURE RISK REPORT")
    assert out.index("Against the whole cache") < out.index("FAILURE RISK REPORT")
    titles = [section["title"] for section in json.loads(call(*args, "--json").out)["sections"]]
    assert titles == ["KV policies: m"]


@pytest.mark.usefixtures("contextcliff_home")
def test_a_sample_smaller_than_the_study_s_is_compared() -> None:
    ended = call("profile", "quick", "--samples-per-bin", "2")
    assert ended.code == 0, ended.err
    result = json.loads(call("compare", *PAIR, "--study", "quick", "--json").out)
    assert (result["n"], result["paired"]) == (10, True)


def test_campaigns_of_one_model_are_compared_on_what_both_measured(store: str) -> None:
    begun = json.loads(call("campaign", "list", "quick", "--json", "--store", store).out)
    first = begun[0]["campaign"]
    ended = call(
        "compare",
        f"quick:reference-short@{first}",
        "quick:reference-short@again",
        *("--json", "--store", store),
    )
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert (result["n"], result["overall"]["difference"]) == (20, 0)
    assert result["a"]["name"] == f"reference-short@{first}"
    assert result["a"]["left_out"] == 30


def test_caps_of_two_methods_are_never_compared(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = copy_of_quick(tmp_path_factory)
    args = ("compare", *PAIR, "--study", "quick", "--out", str(tmp_path), "--json")
    before = json.loads(call(*args, "--store", str(old)).out)
    (path,) = (old / "quick" / "profiles").glob("*/reference-short/cliffs.json")
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "method_version": None, "safe_cap_tokens": 17}))
    after = json.loads(call(*args, "--store", str(old)).out)
    assert after["caps"] == before["caps"]
    assert "reference-short used an earlier method (1)" in after["warnings"][0]
    assert json.loads(path.read_text())["safe_cap_tokens"] == 17


def test_scores_of_earlier_scorers_are_never_compared(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = copy_of_quick(tmp_path_factory)
    args = ("compare", *PAIR, "--study", "quick", "--out", str(tmp_path), "--json")
    before = json.loads(call(*args, "--store", str(old)).out)
    for file in (old / "quick" / "eval_records").rglob("model=reference-short/**/*.parquet"):
        table = pq.ParquetFile(file).read()
        wrong = pa.array([0.0] * table.num_rows)
        for name in ("em", "f1", "contained", "score"):
            table = table.set_column(table.column_names.index(name), name, wrong)
        pq.write_table(table.drop_columns(["scorer_version"]), file)  # as older files are
    (path,) = (old / "quick" / "profiles").glob("*/reference-short/cliffs.json")
    result = json.loads(path.read_text())
    path.write_text(json.dumps({**result, "scorer_version": None, "safe_cap_tokens": 17}))
    after = json.loads(call(*args, "--store", str(old)).out)
    assert after["caps"] == before["caps"]
    assert after["overall"] == before["overall"]
    assert "reference-short were scored by an earlier version of the scorers (1)" in str(
        after["warnings"]
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("reference-short gpt --study quick", ["'gpt'", "quick:reference-short@again"]),
        ("reference-short reference-long@again --study quick", ["reference-long@again"]),
        ("a b --study nosuch", ["nosuch", "quick"]),
        ("a b --study reference", ["no length profile", "contextcliff profile reference"]),
    ],
)
def test_what_is_not_measured_is_named(store: str, line: str, words: list[str]) -> None:
    assert_one_sentence(call("compare", *line.split(), "--store", store), *words)


def test_files_of_scores_are_compared_like_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a = plant(ramp(1_600), 1)
    b = a.assign(score=plant(ramp(800), 1)["score"])
    columns = ["document_id", "example_id", "length_tokens", "score"]
    a[columns].to_csv("before.csv", index=False)
    b[columns].assign(model="m").to_json("after.jsonl", orient="records", lines=True)
    ended = call("compare", "before.csv", "after.jsonl:m", "--json")
    assert (ended.code, ended.err) == (0, "")
    result = json.loads(ended.out)
    assert result["paired"]
    assert (result["a"]["name"], result["b"]["name"]) == ("before.csv", "after.jsonl:m")
    assert result["loss_shift"]["ci_high"] < 1
    assert Path("comparison/comparison.png").is_file()
    assert_one_sentence(call("compare", "before.csv", "after.jsonl:x"), "'x'", "after.jsonl")


def test_logs_of_other_tools_are_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    samples = [inspect_sample(number) for number in range(1, 61)]
    write_inspect(tmp_path / "before.eval", samples)
    write_inspect(tmp_path / "after.eval", samples)
    command = ["compare", "before.eval", "after.eval", "--tokenizer", "reference", "--json"]
    ended = call(*command)
    assert (ended.code, ended.err) == (0, "")
    result = json.loads(ended.out)
    assert result["paired"]
    assert result["n"] == 60
    both = ["--metric", "x", "--score", "em"]
    assert_one_sentence(call(*command, *both), "--metric", "--score")


@pytest.mark.usefixtures("contextcliff_home")
def test_a_clause_on_the_drop_needs_a_drop_that_is_shown(tmp_path: Path) -> None:
    """Of two flat models one passes a loss of 30% at some length by chance."""
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for seed, file in enumerate(files):
        records = plant(flat(0.55), seed, per_bin=12)
        records[["length_tokens", "score", "example_id"]].to_csv(file, index=False)
    ended = call("compare", *map(str, files), "--out", str(tmp_path / "out"))
    assert "neither shows a drop of 30% within the measured lengths" in ended.out
