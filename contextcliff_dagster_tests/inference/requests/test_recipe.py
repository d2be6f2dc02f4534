"""One fixed scaffold: document first, question last, nothing lost, nothing added with length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example, StudyError
from contextcliff_dagster.corpora.corpus import EVIDENCE_SPANS
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe

TEXT = st.text(max_size=200)


@given(document=TEXT, question=TEXT)
def test_document_and_question_stand_in_the_prompt_untouched(document: str, question: str) -> None:
    prompt = Recipe().render(document, question)
    assert prompt.contents() == (f"{document}\n{question}",)


@given(document=TEXT, question=TEXT)
def test_placeholders_inside_a_document_stay_as_they_are(document: str, question: str) -> None:
    document = "{question}" + document + "{document}{0}"
    assert Recipe(template="<{document}|{question}>").render(document, question).contents() == (
        f"<{document}|{question}>",
    )


@given(short=TEXT, long=TEXT, question=TEXT)
def test_the_scaffold_is_the_same_for_every_length(short: str, long: str, question: str) -> None:
    recipe = Recipe(template="Read:\n{document}\nAsk: {question}", system="Be brief.")

    def overhead(document: str) -> int:
        return sum(map(len, recipe.render(document, question).contents())) - len(document)

    assert overhead(short) == overhead(long)
    assert overhead(short) == len("Read:\n\nAsk: ") + len("Be brief.") + len(question)


def test_the_three_modes() -> None:
    chat = Recipe(system="S").render("D", "Q")
    assert [(m.role, m.content) for m in chat.messages] == [("system", "S"), ("user", "D\nQ")]
    prefill = Recipe(mode="chat_prefill", answer_prefix="A:").render("D", "Q")
    assert [(m.role, m.content) for m in prefill.messages] == [
        ("user", "D\nQ"),
        ("assistant", "A:"),
    ]
    completion = Recipe(mode="completion", answer_prefix="\nA:").render("D", "Q")
    assert (completion.text, completion.messages) == ("D\nQ\nA:", ())


def test_replicates_vary_the_instruction_and_never_the_document() -> None:
    recipe = Recipe(
        instructions=("{question}", "Please answer: {question}", "Answer from the text.")
    )
    assert recipe.replicates == 3
    assert [recipe.render("D", "Q", n).contents()[0] for n in range(3)] == [
        "D\nQ",
        "D\nPlease answer: Q",
        "D\nAnswer from the text.\nQ",
    ]


def test_a_further_wording_leaves_the_calls_of_the_others_as_they_were() -> None:
    one, two = Recipe(), Recipe(instructions=("{question}", "Say: {question}"))
    assert one.hash != two.hash
    assert one.replicate_hash(0) == two.replicate_hash(0) != two.replicate_hash(1)


@pytest.mark.parametrize(
    "changes",
    [
        {"template": "{document}\n\n{question}"},
        {"system": "S"},
        {"max_output_tokens": 65},
        {"mode": "completion"},
        {"output_schema": {"type": "object"}},
        {"temperature": 0.5},
    ],
)
def test_whatever_changes_the_request_changes_the_hash(changes: dict[str, object]) -> None:
    changed = Recipe(**changes)  # type: ignore[arg-type]
    assert changed.hash != Recipe().hash
    assert changed.replicate_hash(0) != Recipe().replicate_hash(0)
    assert Recipe.from_dict(changed.to_dict()) == changed


def test_prompts_that_a_model_reads_differently_have_different_hashes() -> None:
    recipes = [Recipe(), Recipe(system="S"), Recipe(mode="completion")]
    prompts = [recipe.render("D", "Q") for recipe in recipes] + [Prompt("chat")]
    assert len({prompt.hash for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"template": "{question}"}, "document"),
        ({"template": "{document}{document}{question}"}, "2 times"),
        ({"instructions": ()}, "no instruction"),
        ({"instructions": ("a", "a")}, "same instruction"),
        ({"mode": "chat_prefill"}, "answer_prefix"),
        ({"answer_prefix": "x"}, "chat_prefill"),
        ({"mode": "completion", "system": "S"}, "no system turn"),
        ({"max_output_tokens": 0}, "at least 1"),
    ],
)
def test_a_recipe_that_cannot_work_says_why(changes: dict[str, object], says: str) -> None:
    with pytest.raises(StudyError, match=says):
        Recipe(**changes)  # type: ignore[arg-type]


def test_watching_attention_is_another_call_and_leaves_all_other_keys() -> None:
    known = Recipe().hash[:16], Recipe().replicate_hash(0)[:16]
    assert known == ("ba6f9aa525ed277f", "65240f1dc99ed936")
    watched = Recipe(attention=True)
    assert watched.replicate_hash(0) != Recipe().replicate_hash(0)
    assert watched.render("D", "Q") == Recipe().render("D", "Q")
    assert Recipe.from_dict(watched.to_dict()) == watched


def test_a_prompt_names_its_evidence_only_where_attention_is_watched() -> None:
    example = Example("e", "d", "Q", (), "", {EVIDENCE_SPANS: [[4, 7]]})

    def prompt(recipe: Recipe) -> Prompt:
        return PlannedCall("k", example, 3, "b00", 0, 0, recipe, lambda _: "one two").prompt()

    assert prompt(Recipe()).evidence == ()
    assert prompt(Recipe(attention=True)).evidence == ((4, 7),)
    assert prompt(Recipe(attention=True)).hash == prompt(Recipe()).hash
