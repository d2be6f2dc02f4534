"""The design document's own interface: one document in two forms, one question, one model.

    benchmark = ContextBenchmark("ledger", scale="8k", seed=42)
    benchmark.generate()
    run_benchmark("smollm2-135m", benchmark)

For a single look. A study keeps answers, resumes, counts money and has intervals
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
"""The design document's scales. ``tokens`` is what the JSON lines are made to have; its
``multiplier`` of all parameters gives no such length, and is not used. Other labels, such as
``8k``, are scales too."""

_ASKED: Mapping[BenchmarkName, str] = {
    "warehouse": "stock",
    "constraints": "value",
    "network": "distance",
}
"""The design document's question on each benchmark (`data.ASKS`), as of the last record."""


class ModelAPI(Protocol):
    """Any model."""

    def complete(self, prompt: str) -> str:
        """Return the model's reply."""
        ...


class BenchmarkResult(TypedDict):
    """One format of a benchmark. ``token_count``: of the document, without the question."""

    correct: bool
    response: str
    expected: int | str
    token_count: int


class ContextBenchmark:
    """One document of records with one question, in all formats.

    Attributes:
        type: the benchmark, by this project's name.
        scale: the label of a number of tokens, which the JSON lines have within 2%.
        seed: same seed, same document.
        data: after `generate`: the design document's dictionary, with its keys; ``question`` and
            ``answer`` (an integer, or a value's name) among them.
        benchmark: after `generate`: the records, and all questions about them.
        question: after `generate`: the one of them that the design document asks.
        structured_doc: after `to_structured`: the JSON lines.
        prose_doc: after `to_prose`: the prose.

    Raises:
        ValueError: unknown type, or a scale that is no number of tokens.
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
            raise ValueError(f"unknown benchmark {benchmark_type!r}: it is one of {known}")
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
        """Make the data.

        Raises:
            StudyError: the scale cannot be met, or the tokenizer cannot be had.
        """
        solver = ScaleSolver(self._count)
        made = solver.solve(Wish(self.type, self.tokens, self.seed))
        self._documents = {}
        self.benchmark = made.data
        self.question = next(
            question
            for question in made.data.questions
            if question.about["ask"] == _ASKED[self.type] and question.about.get("at") is None
        )
        self.data = _as_in_the_design_document(made.data) | {
            "question": self.question.text,
            "answer": _value(self.question.answer),
        }

    def to_structured(self) -> str:
        """Return the document as JSON lines."""
        return self.document("structured")

    def to_prose(self) -> str:
        """Return the document as prose."""
        return self.document("prose")

    def document(self, format: str) -> str:
        """Return the document in ``structured`` or any format (`sentences.FORMATS`).

        Raises:
            ValueError: unknown format.
        """
        name = FORMAT_ALIASES.get(format, format)
        if name not in FORMATS:
            known = ", ".join(("structured", *FORMATS))
            raise ValueError(f"unknown format {format!r}: it is one of {known}")
        if name not in self._documents:
            self._documents[name] = render(self._generated()[0], name).text
        return self._documents[name]

    def prompt(self, format: str) -> str:
        """Return the design document's prompt; for a named value it asks for the value."""
        question = self._generated()[1]
        ending = asked(question.text, question.form, "off")
        return f"{self.document(format)}\n\n{QUESTION}{ending}:"

    def verify_answer(self, response: str) -> bool:
        """Whether the one number or value in a reply is the right one (`scoring`)."""
        question = self._generated()[1]
        choices = [str(choice) for choice in question.choices] if question.form == "value" else []
        visible = parse_answer(response).visible
        return extract_answer(visible, question.form, choices).answer == question.answer

    def token_count(self, format: str = "structured") -> int:
        """Return the document's number of tokens, by the tokenizer."""
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
        model_api: anything with ``complete(prompt)``, or the name of a model of the models file;
            that is asked by its engine, outside of any ledger and budget.
        benchmark: generated here, where it is not yet.
        formats: ``structured`` (``jsonl``), ``prose``, ``csv``, ``markdown``.
        max_output_tokens: for a named model.
        mode: for a named model: ``completion`` for one without a chat template.

    Returns:
        By format: whether the reply was right, the reply, the right answer, the document's tokens.

    Raises:
        ValueError: unknown format.
        EngineError: the named model cannot be reached, or refuses the prompt; one sentence.
        StudyError: there is no such model.
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


def _as_in_the_design_document(data: Benchmark) -> dict[str, Any]:
    """The document's dictionary; here ``initial_...`` is how it is before the first event."""
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
