"""The readers through the interface of engines: they know a prompt, and nothing else."""

from __future__ import annotations

import asyncio
from itertools import product
from math import sqrt
from typing import Any

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.extensions.utilization import readers as prompts
from contextcliff_dagster.extensions.utilization.benchmarks.asking import question_text
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    Benchmark,
    BenchmarkName,
    Question,
)
from contextcliff_dagster.extensions.utilization.readers import (
    Loss,
    PlantedLaw,
    PlantedReader,
    parse_law,
    plausible,
    read_prompt,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    Format,
    Order,
    Verbosity,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.inference.engines.base import (
    Decoding,
    Engine,
    RejectedError,
    declared_identity,
    open_engine,
)
from contextcliff_dagster.inference.models.models_file import ModelEntry, get_model
from contextcliff_dagster.inference.requests.recipe import Recipe, SharedText
from contextcliff_dagster_tests.extensions.utilization.hand_made import document

AFTER = Recipe(template="{document}\n\nQuestion: {question}:")
BEFORE = Recipe(mode="completion", template="Question: {question}.\n\n{document}\n\nAnswer:")
CHAT = Recipe(mode="chat", system="Answer from the document.", template="{document}\n{question}")
VERBOSITIES: tuple[Verbosity, ...] = ("standard", "terse", "descriptive")


def rendered(
    name: BenchmarkName,
    format: Format,
    verbosity: Verbosity = "standard",
    order: Order = "chronological",
) -> str:
    records, questions = document(name)
    data = Benchmark(name, 7, {}, tuple(records), tuple(questions))
    return render(data, format, verbosity, order).text


def worded(question: Question) -> str:
    return f"{question_text(question.about)}\nAnswer with just the {question.form}"


def ask(model: str | ModelEntry, *prompts: tuple[Recipe, str | SharedText, str]) -> list[str]:
    async def answers(engine: Engine) -> list[str]:
        await engine.start()
        try:
            return [await answer(engine, *prompt) for prompt in prompts]
        finally:
            await engine.stop()

    async def answer(engine: Engine, recipe: Recipe, text: str | SharedText, question: str) -> str:
        prompt = recipe.render(text, question)
        counted = await engine.count_prompt_tokens(prompt)
        *pieces, last = [delta async for delta in engine.stream(prompt, Decoding(64))]
        assert counted is not None
        assert last.usage is not None
        assert (last.finish_reason, last.usage.prompt_tokens) == ("stop", counted.tokens)
        assert engine.identity().fields == declared_identity(entry)
        return "".join(piece.text for piece in pieces)

    if isinstance(model, str):  # the shipped entry, with a tokenizer that opens in no time
        entry = get_model(model).model_copy(update={"tokenizer": "reference"})
    else:
        entry = model
    return asyncio.run(answers(open_engine(entry)))


@pytest.mark.parametrize(("name", "format"), list(product(BENCHMARKS, FORMATS)))
def test_the_perfect_reader_is_always_right(name: BenchmarkName, format: Format) -> None:
    _, questions = document(name)
    asked = [
        (recipe, rendered(name, format, verbosity, order), worded(question))
        for recipe, verbosity, order in [
            *((AFTER, verbosity, "shuffled") for verbosity in VERBOSITIES),
            (BEFORE, "standard", "chronological"),
            (CHAT, "terse", "chronological"),
        ]
        for question in questions
    ]
    assert ask("reader-perfect", *asked) == [question.answer for question in questions] * 5


def test_reasons_come_first_where_they_are_asked_for() -> None:
    _, (question, *_) = document("network")
    how = 'Reason first. Then write a last line that begins with "Answer:" and just the number.'
    text = rendered("network", "prose")
    (answer,) = ask("reader-perfect", (AFTER, text, f"{question_text(question.about)}\n{how}"))
    *reasons, last = answer.splitlines()
    assert reasons
    assert last == f"Answer: {question.answer}"


def test_a_question_without_an_answer_is_answered_by_a_word() -> None:
    about = {"ask": "value", "entity": "E-0005", "attr": "size"}
    text = rendered("constraints", "jsonl")
    assert ask("reader-perfect", (AFTER, text, question_text(about))) == ["unknown"]


def test_what_is_no_prompt_of_the_benchmarks_is_refused() -> None:
    _, (question, *_) = document("warehouse")
    text = rendered("warehouse", "prose")
    for prompt, says in (
        ((AFTER, text, "How are you?"), "have no question"),
        ((AFTER, "A novel.\nIts end.", worded(question)), "starts near its"),
        ((AFTER, "\n".join(["A line."] * 60) + text, worded(question)), "starts near its"),
        ((AFTER, text + "\n" + "A line.\n" * 60, worded(question)), "ends near its end"),
    ):
        with pytest.raises(RejectedError, match=f"'utilization-perfect' cannot read .*{says}"):
            ask("reader-perfect", prompt)


def test_a_document_is_read_once_for_its_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = prompts.solver_for

    def counted(records: Any, name: Any) -> Any:
        read.append(len(records))
        return whole(records, name)

    monkeypatch.setattr(prompts, "solver_for", counted)
    monkeypatch.setattr(prompts, "_documents", type(prompts._documents)())
    _, questions = document("network")
    text, other = rendered("network", "csv"), rendered("network", "jsonl")
    ask("reader-perfect", *((AFTER, SharedText(text), worded(one)) for one in questions))
    assert read == [len(document("network")[0])]
    monkeypatch.setattr(prompts, "_KEPT_CHARACTERS", len(text))
    ask("reader-perfect", *((AFTER, which, worded(questions[0])) for which in (text, other, text)))
    assert len(read) == 3, "what is kept is bounded, and the latest is always kept"


def test_the_guesser_is_right_by_chance_alone() -> None:
    _, questions = document("constraints")
    text = rendered("constraints", "jsonl")
    question = questions[0]
    asked = [(AFTER, text, f"{worded(question)} ({number})") for number in range(400)]
    answers = ask("reader-guess", *asked)
    assert answers == ask("reader-guess", *asked), "the same prompt, the same answer"
    choices = plausible(question.about, text)
    assert set(answers) == set(choices)
    share, chance = answers.count(question.answer) / 400, 1 / len(choices)
    assert abs(share - chance) < 4 * sqrt(chance * (1 - chance) / 400)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_guess_is_plausible(name: BenchmarkName) -> None:
    _, questions = document(name)
    for format in FORMATS:
        text = rendered(name, format)
        for question in questions:
            choices = plausible(question.about, text)
            assert len(set(choices)) == len(choices) > 1
            if int(question.about.get("ts", 0)) == 0:  # units of adjustments may be negative
                assert question.answer in choices


def entry(law: str, **more: Any) -> ModelEntry:
    return ModelEntry(name="planted", engine="utilization-planted", model_id=law, **more)


@pytest.mark.parametrize("format", ["jsonl", "prose"])
def test_the_planted_reader_loses_what_its_law_says(format: Format) -> None:
    _, questions = document("network")
    question = questions[3]
    text = "\n".join(AFTER.render(rendered("network", format), worded(question)).contents())
    asking = read_prompt(text)
    for half, top, chance in ((100, 1.0, 0.0), (300, 0.9, 0.2), (100_000, 0.9, 0.0)):
        law = PlantedLaw({format: Loss(half, 2.0)}, top, chance)
        planted = entry(f"{format}={half}/2, top={top}, chance={chance}", tokenizer="reference")
        reader = PlantedReader(planted)
        asyncio.run(reader.start())
        tokens = reader.count(asking.document.text)
        answers = [reader.answer(asking, str(key)) for key in range(1_000)]
        asyncio.run(reader.stop())
        expected = law.right(format, tokens)
        share = answers.count(question.answer) / 1_000
        assert abs(share - expected) < 4 * sqrt(max(expected * (1 - expected), 0.001) / 1_000)
        wrong = {answer for answer in answers if answer != question.answer}
        assert wrong <= set(plausible(question.about, ""))
    unnamed = entry("csv=10/4", tokenizer="reference")
    (answer,) = ask(unnamed, (AFTER, rendered("network", format), worded(question)))
    assert answer == question.answer, "a format without a loss is read at any length"


def test_half_is_lost_at_the_length_that_the_law_names() -> None:
    law = parse_law("jsonl=40_000/6, prose=12000, top=.9, chance=0.1")
    assert law == PlantedLaw({"jsonl": Loss(40_000, 6), "prose": Loss(12_000, 4)}, 0.9, 0.1)
    assert law.read("prose", 12_000) == 0.45
    assert law.right("prose", 12_000) == 0.45 + 0.55 * 0.1
    assert law.read("prose", 1e9) < 1e-6 < 0.89 < law.read("jsonl", 1)
    assert law.read("markdown", 1e9) == 0.9
    assert parse_law("structured=5/1").losses == {"jsonl": Loss(5, 1)}


@pytest.mark.parametrize(
    "law", ["reader-planted", "jsonl=0", "prose=-4", "yaml=5", "top=2", "top=1/4", "prose=5/0"]
)
def test_a_law_that_is_none_is_refused_before_anything_is_read(law: str) -> None:
    with pytest.raises(EngineError, match=r"must give engine .* its losses, such as 'jsonl=4"):
        declared_identity(entry(law))


def test_what_changes_answers_is_in_the_identity() -> None:
    identities = [
        declared_identity(given)
        for given in (
            entry("prose=5", tokenizer="reference", window_tokens=90),
            entry("prose=6", tokenizer="reference", window_tokens=90),
            entry("prose=5", tokenizer="tiktoken:o200k_base", window_tokens=90),
            entry("prose=5", tokenizer="reference", window_tokens=91),
        )
    ]
    assert all(one != other for at, one in enumerate(identities) for other in identities[:at])
    assert identities[0]["window_tokens"] == 90
    assert declared_identity(get_model("reader-perfect"))["window_tokens"] > 10**9
