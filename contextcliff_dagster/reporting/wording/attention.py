"""Words on the attention of the last prompt token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.wording.number_format import tokens
from contextcliff_dagster.reporting.wording.sentences import sentence

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results.attention import AttentionResult


def rope_sentence(attention: AttentionResult | None) -> str | None:
    """Where RoPE is predicted to fail, as a share of the window; None where that has no support."""
    if attention is None or (rope := attention.rope) is None:
        return None
    return (
        f"RoPE extrapolation failure predicted at about {rope.share:.0%} of the window "
        f"[{rope.ci_low:.0%}, {rope.ci_high:.0%}], {tokens(rope.prompt_tokens)} prompt "
        "tokens: the score drops and attention entropy changes there, and the weights were trained "
        f"to {tokens(attention.trained_tokens)} tokens."
    )


def attention_sentences(attention: AttentionResult) -> list[str]:
    """All that attention says of a model, RoPE last."""
    return [sentence(text) for text in (*attention.says, rope_sentence(attention)) if text]
