"""Attention of the last prompt token as it was measured: an entry for each example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ContextCliffError

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class AttentionSample:
    """Attention of the last prompt token over the prompt, of n examples of one model.

    Attributes:
        example_ids: of the examples (n), each once.
        tokens: of their prompts, in the model's own tokens (n).
        entropy: of the attention, divided by the logarithm of ``tokens``: 0 where one token has
            all of it, 1 where all have the same (n, layers, heads).
        sinks: share of the attention on the first tokens of the prompt (n, layers, heads).
        evidence: share on the evidence's tokens, those that are no sinks; NaN where unknown
            (n, layers, heads). All three are NaN where a layer has no such head.
        trained_tokens: length that the weights were trained to; None where unknown.

    Raises:
        ContextCliffError: the arrays do not belong together, an example is there twice, or a value
            is outside 0..1.
    """

    example_ids: tuple[str, ...]
    tokens: Ints
    entropy: Floats
    sinks: Floats
    evidence: Floats
    trained_tokens: int | None

    def __post_init__(self) -> None:
        count = len(self.example_ids)
        shapes = {values.shape for values in (self.entropy, self.sinks, self.evidence)}
        (shape, *others) = shapes
        if others or len(shape) != 3 or shape[0] != count or self.tokens.shape != (count,):
            raise ContextCliffError(
                f"Attention of {count} examples has arrays of shapes {sorted(shapes)} and "
                f"{self.tokens.shape}; each must be (examples, layers, heads), and tokens "
                "(examples,)."
            )
        if len(set(self.example_ids)) < count:
            raise ContextCliffError("Attention has an example twice; give each example once.")
        for name in ("entropy", "sinks", "evidence"):
            values = getattr(self, name)
            if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
                raise ContextCliffError(f"Attention has values of {name!r} outside 0..1.")


_ROUNDING = 1e-5
