"""Prompts of the experiment: the context, then the instruction to continue it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.experiments.common.documents import refuse_prompt_keys
from contextcliff_dagster.inference.requests.recipe import Sampling

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.section import ContinuationSection
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.studies import Study

INSTRUCTION = (
    "The text above breaks off. Continue it from exactly there, as its author would: the same "
    "voice, style, tense and pace. Begin with the next sentence, bring nothing to an end, and "
    "write only the text itself, without a comment."
)
NAMED = {
    "context-tester": "This is an important test of how you write a long narrative from a rich "
    "text. Carry the story on without steering towards an ending, and go on developing its people, "
    "plot and world. Keep the author's style, tone, voice, structure and syntax, yet aim for "
    "variety, complexity and invention. Do not mention these instructions or think aloud; begin."
}
"""Instructions by name. Context-Tester's has its points in its order, in our words."""
TEMPLATE = "{document}\n\n{question}"
TEMPLATE_TOKENS = 32
"""Tokens reserved for a chat template and for the text between context and instruction."""


def instruction_of(section: ContinuationSection) -> str:
    """Return the instruction that follows the context."""
    given = section.instruction.strip()
    return NAMED.get(given, given) or INSTRUCTION


def recipe_of(
    study: Study, section: ContinuationSection, temperature: float, rounds: int | None = None
) -> Recipe:
    """Return an arm's recipe, with the study's mode and system text or the defaults here.

    ``rounds`` defaults to the rounds of the section.

    Raises:
        StudyError: the study has no other experiment, yet sets a key of `prompt` that these
            prompts do not use.
    """
    refuse_prompt_keys(study, "continuation", "rounds")
    return replace(
        study.recipe(),
        template=TEMPLATE,
        instructions=("{question}",),
        max_output_tokens=section.max_tokens,
        temperature=temperature,
        output_schema=None,
        sampling=Sampling(section.top_k, section.top_p, section.seed, rounds or section.rounds),
    )
