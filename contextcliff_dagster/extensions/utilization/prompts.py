"""What is asked around each document: the design document's prompt, and the arms that change it.

The instruction on the form of the answer belongs to the question, because one document has
questions for a number and for a value; all of them are then asked by one recipe, next to each
other, and a prefix cache serves them all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.extraction import MARKER
from contextcliff_dagster.extensions.utilization.section import OnOff, QuestionPlace

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.studies import Study

QUESTION = "Question: "
TEMPLATES: dict[tuple[QuestionPlace, OnOff], str] = {
    ("after", "off"): "{document}\n\n" + QUESTION + "{question}:",
    ("after", "on"): "{document}\n\n" + QUESTION + "{question}",
    ("before", "off"): QUESTION + "{question}.\n\n{document}\n\n" + MARKER,
    ("before", "on"): QUESTION + "{question}\n\n{document}\n\nReasons, then the answer:",
}
_FORMS = {"number": "the number", "value": "the value"}


def asked(text: str, form: Literal["number", "value"], thought: OnOff) -> str:
    """Return the question with what it says about the form of the answer."""
    if thought == "on":
        return (
            f"{text}\nReason step by step first. Then write a last line that begins with "
            f'"{MARKER}" and has just {_FORMS[form]} after it.'
        )
    return f"{text}\nAnswer with just {_FORMS[form]}"


def recipe_of(
    study: Study, thought: OnOff, question_place: QuestionPlace, thought_tokens: int
) -> Recipe:
    """Return the recipe of an arm: mode, system text and cache as the study says, else our own.

    Raises:
        StudyError: the study, which asks for nothing else, has a key of `prompt` that these
            prompts leave no room for.
    """
    own = study.recipe()
    if not study.has_corpus:
        for key in ("template", "instructions", "output_schema"):
            if getattr(study.prompt, key) is not None:
                raise StudyError(
                    f"Study {study.name!r}: the prompts of utilization are its own, so "
                    f"`prompt.{key}` would change nothing; leave it out."
                )
        if study.prompt.replicates > 1:
            raise StudyError(
                f"Study {study.name!r}: utilization repeats documents, not prompts; leave "
                "`prompt.replicates` out and raise `utilization.seeds`."
            )
    limit = thought_tokens if thought == "on" else own.max_output_tokens
    return replace(
        own,
        template=TEMPLATES[question_place, thought],
        instructions=("{question}",),
        max_output_tokens=limit,
        temperature=0.0,
        output_schema=None,
    )
