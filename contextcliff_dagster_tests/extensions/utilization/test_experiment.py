"""The experiment as a study has it: assets, calls, records, result, report, what turns stale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.answers import read_answers
from contextcliff_dagster.experiments.common.measurement import sources_of, spread_calls
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.utilization.experiment import UTILIZATION
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.call_plan import CallPlan
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.measured_stores import copy_of_made
from contextcliff_dagster_tests.support.staleness import stale

SECTION: Mapping[str, Any] = {"benchmarks": ["warehouse"], "scales": ["1k", "2k"], "seeds": 2}


def study_of(name: str = "asked", models: Any = ("reader-perfect",), **keys: Any) -> Study:
    prompt = keys.pop("prompt", {"max_output_tokens": 48})
    section = {**SECTION, **keys}
    return Study.model_validate(
        {"name": name, "models": models, "prompt": prompt, "utilization": section}
    )


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")


@pytest.fixture
def asked(contextcliff_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study as it is, measured in the test's own store."""

    def make(folder: Path) -> None:
        profile_study(study_of(), store=Store(folder))

    copy_of_made(tmp_path_factory, "utilization", make, contextcliff_home)
    return study_of()


def records_of(study: Study) -> Any:
    with StudyRun.open(study, Store.default()) as run:
        return UTILIZATION.read_records(run)


def test_a_study_has_its_assets_partitions_and_jobs() -> None:
    study = study_of(order=["chronological", "shuffled"])
    assets = {key.path[-1]: asset for asset in study_assets(study) for key in asset.keys}
    steps = ("documents", "manifest", "predictions", "records", "result")
    assert assets.keys() == {*(f"utilization_{one}" for one in steps), "cost_estimate", "report"}

    def keys(name: str) -> list[str]:
        partitions = assets[name].partitions_def
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        if "cell" in partitions.partition_dimension_names:
            return list(partitions.get_partitions_def_for_dimension("cell").get_partition_keys())
        return [str(key) for key in partitions.get_partition_keys()]

    assert keys("utilization_documents")[:3] == [
        "warehouse-1k|s000",
        "warehouse-1k|s001",
        "warehouse-2k|s000",
    ]
    assert keys("utilization_predictions")[:3] == [
        "reader-perfect.warehouse-jsonl-1k",
        "reader-perfect.warehouse-jsonl-1k-shuffled",
        "reader-perfect.warehouse-jsonl-2k",
    ]
    assert [job.name for job in study_jobs(study)] == [
        "utilization_asked",
        "utilization_documents_asked",
    ]


def test_a_perfect_reader_is_right_in_every_arm(contextcliff_home: Path) -> None:
    study = study_of(
        benchmarks=["warehouse", "constraints", "network"],
        scales=["1k"],
        formats=["jsonl", "prose", "csv", "markdown"],
        order=["chronological", "shuffled"],
        verbosity=["standard", "descriptive"],
        corruption=[0, 0.05, {"share": 0.05, "of": "recomputed"}],
        thought=["off", "on"],
        question_place=["after", "before"],
        evidence=["growing", "fixed"],
        seeds=1,
    )
    done = profile_study(study)
    records = records_of(study)
    assert len(records) == 3 * 4 * 8 * 4 == done.calls["reader-perfect"].sent
    assert set(records["score"]) == {1.0}, records[records["score"] < 1]["raw_output"].tolist()
    assert set(records["arm"]) == {
        *("base", "order=shuffled", "verbosity=descriptive", "corruption=0.05"),
        *("corruption=0.05 recomputed", "thought=on", "question=before", "evidence=fixed"),
    }
    thoughts = records.groupby("arm")["thought"].count()
    assert thoughts["thought=on"] == 3 * 4 * 4
    assert thoughts.sum() == thoughts["thought=on"]
    assert set(records["question_kind"]) >= {"lookup", "aggregate", "as_of", "chain"}
    assert (records["needed"] >= 1).all()
    assert (records[records["question_kind"] == "lookup"]["needed"] == 1).all()
    assert records["evidence_position"].between(0, 1).all()
    (result,) = UTILIZATION.read_results(StudyRun(study, Store.default(), None, done.campaign))  # type: ignore[arg-type]
    assert result.n == len(records)
    assert {effect.factor for effect in result.effects} >= {"order", "thought", "question"}


def test_formats_are_paired_by_their_data(asked: Study) -> None:
    records = records_of(asked)
    assert sorted(records["document_key"].unique()) == [
        "warehouse/1k/0",
        "warehouse/1k/1",
        "warehouse/2k/0",
        "warehouse/2k/1",
    ]
    by_format = dict(iter(records.groupby("format")))
    columns = ["document_key", "question_kind", "expected", "records", "needed", "hops"]
    halves = [
        by_format[name][columns].sort_values(columns).reset_index(drop=True)
        for name in ("jsonl", "prose")
    ]
    assert halves[0].equals(halves[1])
    assert not set(by_format["jsonl"]["document_id"]) & set(by_format["prose"]["document_id"])
    apart = study_of("apart", match="tokens", scales=["1k"])
    profile_study(apart)
    keys = records_of(apart).groupby("format")["document_key"].agg(set)
    assert not keys["jsonl"] & keys["prose"], "nothing is paired"


def test_the_questions_of_a_document_are_adjacent_and_the_lookup_is_first(
    contextcliff_home: Path,
) -> None:
    study = study_of(thought=["off", "on"])
    prepare_study(study)
    with StudyRun.open(study, Store.default()) as run:
        sources = sources_of(run, UTILIZATION)
        assert len(sources) == 2, "one for each recipe"
        for source in sources:
            assert source.recipe is not None
            cells = UTILIZATION.cells(study)
            plan = CallPlan(
                study=study.name,
                campaign=run.campaign,
                source=source.samples,
                recipe=source.recipe,
                bins=cells,
                n=100,
            )
            calls = plan.calls("")
            documents = [call.example.document_id for call in calls]
            assert documents == [one for one in dict.fromkeys(documents) for _ in range(4)]
            assert {call.example.task for call in calls[::4]} == {"lookup"}


def test_the_prompt_is_that_of_the_design_document(contextcliff_home: Path) -> None:
    study = study_of(scales=["1k"], thought=["off", "on"], question_place=["after", "before"])
    prepare_study(study)
    with StudyRun.open(study, Store.default()) as run:
        calls = {call.bin: call for call in spread_calls(run, [UTILIZATION], 6)}
        prompts = {cell: call.prompt().messages[-1].content for cell, call in calls.items()}
    base = prompts["warehouse-jsonl-1k"]
    document = calls["warehouse-jsonl-1k"].document
    question = calls["warehouse-jsonl-1k"].example.question.partition("\n")[0]
    assert base == f"{document}\n\nQuestion: {question}\nAnswer with just the number:"
    thought = prompts["warehouse-jsonl-1k-thought"]
    assert thought.startswith(f"{document}\n\nQuestion: {question}\nReason step by step first.")
    before = prompts["warehouse-jsonl-1k-question-before"]
    assert before == (
        f"Question: {question}\nAnswer with just the number.\n\n{document}\n\nAnswer:"
    )
    assert calls["warehouse-jsonl-1k-thought"].recipe.max_output_tokens == 1024
    assert calls["warehouse-jsonl-1k"].recipe.max_output_tokens == 48


def test_it_is_topped_up_and_rebuilt(asked: Study, contextcliff_home: Path) -> None:
    more = profile_study(study_of(seeds=3))
    assert more.calls["reader-perfect"].sent == 2 * 2 * 4
    assert profile_study(study_of(seeds=3)).calls["reader-perfect"].sent == 0
    page = more.report.md.read_text("utf-8")
    assert page.index("Lengths are made here, not natural") < 400
    for folder in ("utilization_records", "utilization_documents", "report", "results"):
        for path in sorted((contextcliff_home / asked.name / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert rebuild_report(study_of(seeds=3)).report.md.read_text("utf-8") == page


def test_fewer_examples_than_the_study_has_are_whole_documents_first() -> None:
    study = study_of()
    assert UTILIZATION.samples_per_cell(study) == 8
    assert UTILIZATION.samples_per_cell(study.with_samples(4)) == 4
    assert UTILIZATION.samples_per_cell(study.with_samples(400)) == 8


def test_the_estimate_comes_before_the_documents(contextcliff_home: Path) -> None:
    study = study_of(scales=["1k", "8k"], formats=["jsonl", "prose", "csv"])
    before = prepare_study(study, keep=False).estimate
    assert not (contextcliff_home / study.name).exists()
    after = prepare_study(study).estimate
    assert [line.bin for line in before.lines] == [line.bin for line in after.lines]
    assert before.calls == after.calls == 2 * 3 * 2 * 4
    for guess, real in zip(before.lines, after.lines, strict=True):
        assert guess.prompt_tokens == pytest.approx(real.prompt_tokens, rel=0.06), guess.bin


def test_an_estimate_of_millions_of_tokens_makes_no_document() -> None:
    study = study_of(scales=["1M", "2M"], seeds=10)
    estimate = prepare_study(study, keep=False).estimate
    assert estimate.calls == 2 * 2 * 10 * 4
    assert estimate.tokens > 10 * 4 * 3_000_000


def test_answers_have_their_questions(asked: Study) -> None:
    with StudyRun.open(asked, Store.default()) as run:
        answers = read_answers(run, experiment=UTILIZATION).to_pylist()
    assert len(answers) == 32
    for answer in answers:
        assert answer["accepted"] == [answer["parsed_answer"]]
        assert answer["question"]


STALE: Mapping[str, tuple[Mapping[str, Any], set[str]]] = {
    "margin": ({"margin": 0.2}, {"result"}),
    "thought_tokens": ({"thought": ["off", "on"], "thought_tokens": 99}, {"predictions"}),
    "seeds": ({"seeds": 3}, {"documents", "manifest"}),
    "questions": ({"questions": 5}, {"documents", "manifest"}),
    "match": ({"match": "tokens"}, {"documents", "manifest"}),
    "tokenizer": ({"tokenizer": "tiktoken:cl100k_base"}, {"documents", "manifest"}),
    "order": ({"order": ["shuffled"]}, {"documents", "manifest"}),
    "verbosity": ({"verbosity": ["terse"]}, {"documents", "manifest"}),
    "corruption": ({"corruption": [0.1]}, {"documents", "manifest"}),
    "evidence": ({"evidence": ["fixed"]}, {"documents", "manifest"}),
    "formats": ({"formats": ["jsonl", "csv"]}, {"documents", "manifest", "predictions"}),
    "scales": ({"scales": ["1k", "4k"]}, {"documents", "manifest", "predictions"}),
    "benchmarks": ({"benchmarks": ["network"]}, {"documents", "manifest", "predictions"}),
    "question_place": ({"question_place": ["before"]}, {"predictions"}),
    "thought": ({"thought": ["on"]}, {"predictions"}),
    "factorial": ({"factorial": True}, {"documents", "manifest"}),
    "prompt": ({"prompt": {"max_output_tokens": 99}}, {"predictions"}),
}
"""Key -> the edit, and the steps whose own code version changes with it."""


@pytest.mark.parametrize("key", STALE)
def test_an_edited_key_changes_the_assets_that_depend_on_it(key: str) -> None:
    edit, steps = STALE[key]

    def versions(study: Study) -> dict[str, str]:
        return {
            one.path[-1].removeprefix("utilization_"): str(version)
            for asset in study_assets(study)
            for one, version in asset.code_versions_by_key.items()
        }

    before = versions(study_of(thought=["off", "on"]) if key == "thought_tokens" else study_of())
    after = versions(study_of(**edit))
    changed = {name for name in before if before[name] != after[name]}
    assert changed - {"cost_estimate"} == steps


def test_every_key_is_looked_at() -> None:
    assert STALE.keys() == {*UTILIZATION.section.model_fields, "prompt"}


def test_dagster_shows_it_fresh_until_it_is_edited(contextcliff_home: Path) -> None:
    study = study_of(scales=["1k"], seeds=1)
    with dg.DagsterInstance.ephemeral() as instance:
        profile_study(study, instance=instance)
        assert stale(study, instance) == set()
        edited = study_of(scales=["1k"], seeds=1, margin=0.2)
        assert stale(edited, instance) == {"utilization_result", "cost_estimate"}


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ({"template": "{document} {question}"}, "`prompt.template` would change nothing"),
        ({"replicates": 2}, "does not repeat utilization; remove it"),
        ({"output_schema": {"type": "object"}}, "`prompt.output_schema` would change nothing"),
    ],
)
def test_what_would_be_ignored_is_refused(prompt: dict[str, Any], why: str) -> None:
    with pytest.raises(StudyError, match=why):
        prepare_study(study_of(prompt={"max_output_tokens": 48, **prompt}))


def test_a_reader_has_no_weights_to_press() -> None:
    with pytest.raises(StudyError, match="no weights that kvpress reads"):
        get_model("reader-perfect+knorm@0.5")
