"""Whether a prompt and its answer fit into the model's window: judged before sending, never cut."""

from __future__ import annotations

import math

from contextcliff_dagster.inference.engines.base import PromptCount
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.recipe import Prompt

SCAFFOLD_CHARS_PER_TOKEN = 3
"""On the high side, for the few words around a document where the tokenizer is not known."""
TEMPLATE_TOKENS = 100
"""As much as the longest chat templates add, where the template is not in the count: a server that
cuts what is too long would cut as much unnoticed."""


def unknown_window(model: str) -> str:
    """The sentence for a model whose window neither its entry nor its server states."""
    return (
        f"Note: the context window is unknown for model {model!r}, so only its server can refuse "
        "prompts that are too long; give `window_tokens` in models.yaml."
    )


def overflows(
    call: PlannedCall, prompt: Prompt, own: PromptCount | None, window_tokens: int | None
) -> str | None:
    """A sentence where prompt + output do not fit, else None (also where the window is unknown).

    By the model's own count; lacking one, by the study's count of the document and a careful guess
    for the rest. What slips through is refused by the server, which comes to the same outcome.
    """
    if window_tokens is None:
        return None
    template = 0
    if own is not None:
        tokens, counted = own.tokens, "counted"
        if not own.exact and prompt.mode != "completion":
            template, counted = TEMPLATE_TOKENS, f"counted without {TEMPLATE_TOKENS} for a template"
    else:
        rest = sum(map(len, prompt.contents())) - len(call.document)
        tokens = call.length_tokens + math.ceil(rest / SCAFFOLD_CHARS_PER_TOKEN)
        counted = "estimated"
    needed = tokens + template + call.recipe.max_output_tokens
    if needed <= window_tokens:
        return None
    return (
        f"{tokens} prompt tokens ({counted}) and up to {call.recipe.max_output_tokens} of output "
        f"exceed the window of {window_tokens}; not sent"
    )
