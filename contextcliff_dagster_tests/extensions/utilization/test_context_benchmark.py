"""The design document's own interface, on our data, formats and engines."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.extensions import utilization
from contextcliff_dagster.extensions.utilization import (
    CONSTRAINT_PARAMS,
    LEDGER_PARAMS,
    NETWORK_PARAMS,
    SCALE_PARAMS,
    ContextBenchmark,
    generate_constraints,
    generate_ledger,
    generate_network,
    run_benchmark,
    scale_params,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import parse


class Scripted:
    """A model that replies as it is made to, and keeps its prompts."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.prompts = list(replies), list[str]()

    def complete(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self.replies.pop(0)


@pytest.fixture(scope="module")
def ledger() -> ContextBenchmark:
    benchmark = ContextBenchmark("ledger", scale="4k", seed=7)
    benchmark.generate()
    return benchmark


def test_a_ledger_is_made_written_in_two_forms_and_counted(ledger: ContextBenchmark) -> None:
    assert ledger.type == "warehouse"
    structured, prose = ledger.to_structured(), ledger.to_prose()
    assert (ledger.structured_doc, ledger.prose_doc) == (structured, prose)
    assert abs(ledger.token_count() - 4000) <= 80
    assert ledger.token_count("prose") > ledger.token_count("structured")
    assert ledger.benchmark is not None
    records = list(ledger.benchmark.records)
    assert parse(structured, "warehouse") == parse(prose, "warehouse") == records


def test_its_data_answer_the_question_by_the_design_documents_rule(
    ledger: ContextBenchmark,
) -> None:
    assert ledger.data is not None
    assert ledger.question is not None
    about = ledger.question.about
    assert ledger.data["question"].startswith(f"What is the current stock of {about['sku']} at ")
    changes = [
        one["qty"]
        for one in ledger.data["transactions"]
        if (one["warehouse"], one["sku"]) == (about["warehouse"], about["sku"])
    ]
    before = ledger.data["initial_inventory"][about["warehouse"]][about["sku"]]
    assert ledger.data["answer"] == before + sum(changes)


def test_the_documents_own_calls_return_its_dictionaries() -> None:
    ledger = generate_ledger(scale_params(LEDGER_PARAMS, "4k"), 7)
    assert ledger == generate_ledger(params=scale_params(LEDGER_PARAMS, "4k"), seed=7)
    assert ledger != generate_ledger(scale_params(LEDGER_PARAMS, "4k")), "the seed is 42"
    sku, place = re.findall(r"(SKU-\d+) at .*?(WH-\d+)", ledger["question"])[0]
    moved = (t["qty"] for t in ledger["transactions"] if (t["warehouse"], t["sku"]) == (place, sku))
    assert ledger["answer"] == ledger["initial_inventory"][place][sku] + sum(moved)
    constraints = generate_constraints(scale_params(CONSTRAINT_PARAMS, "4k"))
    name, entity = re.findall(r"What is the (\w+) of .*?(E-\d+)", constraints["question"])[0]
    assert entity in constraints["entities"]
    assert str(constraints["answer"]) in map(str, constraints["domains"][name])
    network = generate_network(scale_params(NETWORK_PARAMS, "4k"), 3)
    assert list(network) == ["nodes", "initial_edges", "events", "question", "answer"]


def test_a_scale_is_a_length_and_not_a_factor() -> None:
    assert len(generate_ledger(LEDGER_PARAMS)["transactions"]) == 50_000
    sizes = scale_params(LEDGER_PARAMS, "100k")
    records = sizes["num_warehouses"] * sizes["num_skus"] + sizes["num_transactions"]
    assert records == pytest.approx(100_000 / 33.7, rel=0.03), "of 33.7 tokens each"
    with pytest.raises(ValueError, match="pass sizes of your own to generate_ledger"):
        scale_params({**LEDGER_PARAMS, "num_skus": 9}, "100k")


def test_a_model_is_asked_in_each_format(ledger: ContextBenchmark) -> None:
    assert ledger.data is not None
    right = ledger.data["answer"]
    model = Scripted(f"{right}", f"It is {right + 1} units.", "", f"**{right}** units")
    formats = ["structured", "prose", "csv", "markdown"]
    results = run_benchmark(model, ledger, formats)
    assert list(results) == formats
    assert [one["correct"] for one in results.values()] == [True, False, False, True]
    assert results["prose"] == {
        "correct": False,
        "response": f"It is {right + 1} units.",
        "expected": right,
        "token_count": ledger.token_count("prose"),
    }
    assert model.prompts[0].startswith(f"{ledger.to_structured()}\n\nQuestion: What is the current")
    assert all(prompt.endswith("\nAnswer with just the number:") for prompt in model.prompts)


def test_both_formats_of_the_design_document_are_asked_by_default() -> None:
    benchmark = ContextBenchmark("constraint", scale="2k", seed=3)
    model = Scripted("<think>It is not green.</think>nothing", "nothing")
    results = run_benchmark(model, benchmark)
    assert list(results) == ["structured", "prose"]
    assert benchmark.question is not None
    assert benchmark.question.about["ask"] == "value"
    assert model.prompts[0].endswith("\nAnswer with just the value:")
    assert not results["prose"]["correct"]
    assert benchmark.verify_answer(
        f"<think>Not sure.</think>The value is {benchmark.data['answer']}."
    )


def test_a_network_has_the_design_documents_keys_and_its_initial_weights() -> None:
    benchmark = ContextBenchmark("network", scale="3k", seed=5)
    benchmark.generate()
    assert benchmark.data is not None
    assert list(benchmark.data) == ["nodes", "initial_edges", "events", "question", "answer"]
    assert "shortest path" in benchmark.data["question"]
    first = benchmark.data["initial_edges"][0]
    assert benchmark.to_prose().count(f"Node {int(first[0][2:])} ")
    assert {(*one[:2],) for one in benchmark.data["initial_edges"]} >= {
        (one["from"], one["to"]) for one in benchmark.data["events"]
    }


def test_the_same_seed_makes_the_same_document(ledger: ContextBenchmark) -> None:
    again, other = (ContextBenchmark("warehouse", scale="4k", seed=seed) for seed in (7, 8))
    assert again.to_prose() == ledger.to_prose()
    assert other.to_structured() != ledger.to_structured()


def test_a_model_of_the_models_file_answers_through_its_engine() -> None:
    benchmark = ContextBenchmark("ledger", scale="1k", seed=1, tokenizer="reference")
    results = run_benchmark("reference-short", benchmark, max_output_tokens=4)
    assert {type(one["response"]) for one in results.values()} == {str}
    assert abs(results["structured"]["token_count"] - 1000) <= 20
    with pytest.raises(StudyError, match="no-such-model"):
        run_benchmark("no-such-model", benchmark)


def test_a_prompt_beyond_the_models_window_is_one_sentence() -> None:
    benchmark = ContextBenchmark("ledger", scale="9k", seed=1, tokenizer="reference")
    with pytest.raises(EngineError, match=r"refuses the prompt: its 9,\d+ tokens and 64 of output"):
        run_benchmark("reference-short", benchmark)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("warehose",), "unknown benchmark 'warehose'; choose one of warehouse, constraints"),
        (("ledger", "big"), "scale 'big' is not a number of tokens"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ContextBenchmark(*arguments)


def test_an_unknown_format_is_refused(ledger: ContextBenchmark) -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; choose one of structured, jsonl"):
        ledger.document("xml")


def test_its_scales_are_those_of_the_design_document() -> None:
    assert {name: values["tokens"] for name, values in SCALE_PARAMS.items()} == {
        "100k": 100_000,
        "500k": 500_000,
        "1M": 1_000_000,
        "2M": 2_000_000,
    }
    assert ContextBenchmark("ledger").tokens == 1_000_000


def test_importing_the_room_loads_none_of_it() -> None:
    code = (
        "import sys; import contextcliff_dagster.extensions.utilization as u; "
        "print([m for m in sys.modules if m.startswith(u.__name__ + '.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="has no attribute 'generate_prose'"):
        _ = utilization.generate_prose
