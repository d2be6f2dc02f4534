"""What a model is asked: the context, then to go on where it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StudyError
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
TEMPLATE = "{document}\n\n{question}"
TEMPLATE_TOKENS = 32
"""Kept free for the turns of a chat template and what joins context and instruction."""


def instruction_of(section: ContinuationSection) -> str:
    """Return what is asked after the context."""
    return section.instruction.strip() or INSTRUCTION


def recipe_of(
    study: Study, section: ContinuationSection, temperature: float, rounds: int | None = None
) -> Recipe:
    """Return the recipe of an arm: mode and system text as the study says, else our own.

    ``rounds``: those of the section when None.

    Raises:
        StudyError: the study, which asks for nothing else, has a key of `prompt` that these
            prompts leave no room for.
    """
    if not study.has_corpus:
        for key in ("template", "instructions", "output_schema"):
            if getattr(study.prompt, key) is not None:
                raise StudyError(
                    f"Study {study.name!r}: the prompts of a continuation are its own, so "
                    f"`prompt.{key}` would change nothing; leave it out, or set "
                    "`continuation.instruction`."
                )
        if study.prompt.replicates > 1:
            raise StudyError(
                f"Study {study.name!r}: a continuation is repeated by `continuation.rounds`; leave "
                "`prompt.replicates` out."
            )
    return replace(
        study.recipe(),
        template=TEMPLATE,
        instructions=("{question}",),
        max_output_tokens=section.max_tokens,
        temperature=temperature,
        output_schema=None,
        sampling=Sampling(section.top_k, section.top_p, section.seed, rounds or section.rounds),
    )
