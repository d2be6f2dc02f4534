"""The design document's interface: one document in two formats, one question, one model.

    benchmark = ContextBenchmark("ledger", scale="8k", seed=42)
    benchmark.generate()
    run_benchmark("smollm2-135m", benchmark)

`generate_ledger`, `generate_constraints` and `generate_network` return the data alone.

Use it for a quick look. A study also stores answers, resumes, tracks cost and reports intervals
(docs/utilization.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    ALIASES,
    BENCHMARKS,
    DOMAINS,
    Benchmark,
    BenchmarkName,
    Question,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import DEFAULTS, generate
from contextcliff_dagster.extensions.utilization.extraction import extract_answer
from contextcliff_dagster.extensions.utilization.prompts import QUESTION, asked
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMAT_ALIASES,
    FORMATS,
    Format,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.extensions.utilization.scales import ScaleSolver, Wish, scale_tokens
from contextcliff_dagster.scoring.parse import parse_answer

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

SCALE_PARAMS: Mapping[str, Mapping[str, float]] = {
    "100k": {"multiplier": 0.05, "tokens": 100_000},
    "500k": {"multiplier": 0.25, "tokens": 500_000},
    "1M": {"multiplier": 0.5, "tokens": 1_000_000},
    "2M": {"multiplier": 1.0, "tokens": 2_000_000},
}
"""The design document's scales. ``tokens`` is the length of the JSON lines; ``multiplier`` is kept
for reference only, because scaling the parameters by it misses that length. Other labels, such as
``8k``, are also valid scales."""

LEDGER_PARAMS = DEFAULTS["warehouse"]
CONSTRAINT_PARAMS = DEFAULTS["constraints"]
NETWORK_PARAMS = DEFAULTS["network"]

_ASKED: Mapping[BenchmarkName, str] = {
    "warehouse": "stock",
    "constraints": "value",
    "network": "distance",
}
"""Benchmark -> the design document's question (`data.ASKS`), asked about the final state."""


def scale_params(base_params: Mapping[str, int], scale: str) -> Mapping[str, int]:
    """Return the sizes of a document with about ``scale`` tokens as JSON lines.

    The sizes keep the design document's proportions; a product with its multiplier misses the
    length. `ContextBenchmark` matches the length within 2%, because it knows the seed.

    Raises:
        ValueError: ``base_params`` is none of the design document's, or ``scale`` no scale.
    """
    name = next((name for name, sizes in DEFAULTS.items() if sizes == base_params), None)
    if name is None:
        raise ValueError(
            "scale_params scales LEDGER_PARAMS, CONSTRAINT_PARAMS or NETWORK_PARAMS; pass sizes of "
            "your own to generate_ledger, generate_constraints or generate_network"
        )
    return ContextBenchmark(name, scale, seed=0)._generated()[0].parameters


def generate_ledger(params: Mapping[str, int], seed: int = 42) -> dict[str, Any]:
    """Return the design document's dictionary for a ledger; raise ValueError for bad sizes."""
    return _designed(generate("warehouse", seed, params))[1]


def generate_constraints(params: Mapping[str, int], seed: int = 42) -> dict[str, Any]:
    """Return the same for constraints; raise like `generate_ledger`."""
    return _designed(generate("constraints", seed, params))[1]


def generate_network(params: Mapping[str, int], seed: int = 42) -> dict[str, Any]:
    """Return the same for a network; raise like `generate_ledger`."""
    return _designed(generate("network", seed, params))[1]


class ModelAPI(Protocol):
    """A model that completes prompts."""

    def complete(self, prompt: str) -> str:
        """Return the model's reply."""
        ...


class BenchmarkResult(TypedDict):
    """Result for one format; ``token_count`` counts the document without the question."""

    correct: bool
    response: str
    expected: int | str
    token_count: int


class ContextBenchmark:
    """A document of records with one question, available in all formats.

    Attributes:
        type: the name of the benchmark in this project.
        scale: the label of the number of tokens; the JSON lines match it within 2%.
        seed: the seed; the same seed gives the same document.
        data: the design document's dictionary, including ``question`` and ``answer`` (an integer
            or the name of a value); set by `generate`.
        benchmark: the records and all questions about them; set by `generate`.
        question: the question that the design document asks; set by `generate`.
        structured_doc: the JSON lines; set by `to_structured`.
        prose_doc: the prose; set by `to_prose`.

    Raises:
        ValueError: the type is unknown, or the scale is not a number of tokens.
    """

    def __init__(
        self,
        benchmark_type: str,
        scale: str = "1M",
        seed: int = 42,
        *,
        tokenizer: str = "tiktoken:o200k_base",
    ) -> None:
        name = ALIASES.get(benchmark_type, benchmark_type)
        if name not in BENCHMARKS:
            known = ", ".join((*BENCHMARKS, *ALIASES))
            raise ValueError(f"unknown benchmark {benchmark_type!r}; choose one of {known}")
        self.type: BenchmarkName = name
        self.scale, self.seed, self.tokenizer = scale, seed, tokenizer
        self.tokens = scale_tokens(scale)
        self.data: dict[str, Any] | None = None
        self.benchmark: Benchmark | None = None
        self.question: Question | None = None
        self._documents: dict[Format, str] = {}

    @property
    def structured_doc(self) -> str | None:
        """Return the JSON lines; None before `to_structured`."""
        return self._documents.get("jsonl")

    @property
    def prose_doc(self) -> str | None:
        """Return the prose; None before `to_prose`."""
        return self._documents.get("prose")

    def generate(self) -> None:
        """Generate records and question; raise StudyError if the scale cannot be reached."""
        solved = ScaleSolver(self._count).solve(Wish(self.type, self.tokens, self.seed))
        self._documents = {}
        self.benchmark = solved.data
        self.question, self.data = _designed(solved.data)

    def to_structured(self) -> str:
        """Return the document as JSON lines."""
        return self.document("structured")

    def to_prose(self) -> str:
        """Return the document as prose."""
        return self.document("prose")

    def document(self, format: str) -> str:
        """Return the document in a format, such as ``structured``; raise ValueError."""
        name = FORMAT_ALIASES.get(format, format)
        if name not in FORMATS:
            known = ", ".join(("structured", *FORMATS))
            raise ValueError(f"unknown format {format!r}; choose one of {known}")
        if name not in self._documents:
            self._documents[name] = render(self._generated()[0], name).text
        return self._documents[name]

    def prompt(self, format: str) -> str:
        """Return the design document's prompt, which asks for the number or the named value."""
        question = self._generated()[1]
        return f"{self.document(format)}\n\n{QUESTION}{asked(question.text, question.form, 'off')}:"

    def verify_answer(self, response: str) -> bool:
        """Return whether the only number or value in a reply is the right one (see `scoring`)."""
        question = self._generated()[1]
        choices = [str(choice) for choice in question.choices] if question.form == "value" else []
        visible = parse_answer(response).visible
        return extract_answer(visible, question.form, choices).answer == question.answer

    def token_count(self, format: str = "structured") -> int:
        """Return the document's number of tokens under the tokenizer."""
        return self._count(self.document(format))

    def _generated(self) -> tuple[Benchmark, Question]:
        if self.benchmark is None or self.question is None:
            self.generate()
        assert self.benchmark is not None and self.question is not None  # noqa: PT018
        return self.benchmark, self.question

    def _count(self, text: str) -> int:
        return self._tokenizer.count(text)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

        return open_any_tokenizer(self.tokenizer)


def run_benchmark(
    model_api: ModelAPI | str,
    benchmark: ContextBenchmark,
    formats: Sequence[str] = ("structured", "prose"),
    *,
    max_output_tokens: int = 64,
    mode: Literal["chat", "completion"] = "chat",
) -> dict[str, BenchmarkResult]:
    """Ask a model the benchmark's question over its document in each format.

    Args:
        model_api: an object with ``complete(prompt)``, or the name of a model in the models file;
            a named model is asked through its engine, without ledger or budget.
        benchmark: the benchmark; generated first if necessary.
        formats: any of ``structured`` (``jsonl``), ``prose``, ``csv``, ``markdown``.
        max_output_tokens: the output limit of a named model.
        mode: ``completion`` for a named model without a chat template.

    Returns:
        Format -> whether the reply is right, the reply, the right answer, the document's tokens.

    Raises:
        ValueError: the format is unknown.
        EngineError: the named model cannot be reached or refuses the prompt.
        StudyError: the named model is unknown.
    """
    prompts = {format: benchmark.prompt(format) for format in formats}
    if isinstance(model_api, str):
        from contextcliff_dagster.inference.execution.single_request import named_model

        with named_model(model_api, max_output_tokens, mode) as model:
            return run_benchmark(model, benchmark, formats)
    replies = {format: model_api.complete(prompt) for format, prompt in prompts.items()}
    _, question = benchmark._generated()
    return {
        format: {
            "correct": benchmark.verify_answer(reply),
            "response": reply,
            "expected": _value(question.answer),
            "token_count": benchmark.token_count(format),
        }
        for format, reply in replies.items()
    }


def _value(answer: str) -> int | str:
    return int(answer) if answer.removeprefix("-").isdecimal() else answer


def _designed(data: Benchmark) -> tuple[Question, dict[str, Any]]:
    """Return the design document's question and dictionary."""
    question = next(
        question
        for question in data.questions
        if question.about["ask"] == _ASKED[data.name] and question.about.get("at") is None
    )
    asked = {"question": question.text, "answer": _value(question.answer)}
    return question, _as_in_the_design_document(data) | asked


def _as_in_the_design_document(data: Benchmark) -> dict[str, Any]:
    """Return the design document's dictionary; ``initial_...`` is before the first event."""
    records = data.records
    match data.name:
        case "warehouse":
            stock: dict[str, dict[str, int]] = {}
            for record in records:
                if record["action"] == "initial":
                    stock.setdefault(record["warehouse"], {})[record["sku"]] = record["qty"]
            return {
                "initial_inventory": stock,
                "transactions": [dict(r) for r in records if r["action"] != "initial"],
            }
        case "constraints":
            names = ("entity", "e1", "e2", "if_entity", "then_entity")
            return {
                "entities": sorted({r[key] for r in records for key in names if key in r}),
                "attributes": list(DOMAINS),
                "domains": {name: list(values) for name, values in DOMAINS.items()},
                "constraints": [dict(record) for record in records],
            }
        case "network":
            edges = (record for record in records if record["type"] == "edge")
            return {
                "nodes": [record["id"] for record in records if record["type"] == "node"],
                "initial_edges": [(edge["from"], edge["to"], edge["weight"]) for edge in edges],
                "events": [dict(record) for record in records if record["type"] == "event"],
            }
