"""Writers usable as engines in models.yaml: `continuation-human` and `continuation-planted`.

Both write sentences from the context in random order, so their prose is the author's. With a long
context, the planted writer falls into a loop in a fraction of its continuations.
"""

from __future__ import annotations

import bisect
import re
from typing import Any

import numpy as np

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.experiments.common.documents import DEFAULT_TOKENIZER
from contextcliff_dagster.extensions.continuation.prose.words import sentence_ends
from contextcliff_dagster.extensions.continuation.section import tokens_of
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.scripted import UNLIMITED, ScriptedEngine
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

WRITERS_VERSION = 1
"""Version in the writers' identity; increase it if a writer's answers change."""
EXAMPLE = "loop=8k/0.5"
_LAW = re.compile(r"loop=([^/]+)/(\d(?:\.\d+)?)")
_CONTEXT_TOKENS = 2_000
"""Number of tokens at the end of the context, at every size, from which sentences are taken."""


def writer_identity(entry: ModelEntry) -> dict[str, Any]:
    """Return everything that determines a writer's answers; raise EngineError without a law."""
    return {
        "engine": entry.engine,
        "writers_version": WRITERS_VERSION,
        "tokenizer": entry.tokenizer or DEFAULT_TOKENIZER,
        "law": _law(entry) if entry.engine == "continuation-planted" else None,
        "window_tokens": entry.window_tokens or UNLIMITED,
    }


def _law(entry: ModelEntry) -> tuple[int, float]:
    """Return the prompt length from which loops begin, and the share of continuations that loop."""
    match = _LAW.fullmatch(entry.model_id.replace(" ", ""))
    try:
        tokens, share = tokens_of(match[1] if match else ""), float(match[2] if match else 2)
    except ValueError:
        tokens, share = 0, 2.0
    if share > 1.0:
        raise EngineError(
            f"Model {entry.name!r}: engine {entry.engine!r} needs a `model_id` such as "
            f"{EXAMPLE!r}: loops from so many prompt tokens on, in this share of continuations."
        )
    return tokens, share


class HumanWriter(ScriptedEngine):
    """Engine that writes as the author does, whatever the context size."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(entry, writer_identity(entry))

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return sentences from the end of the context, in seeded order, up to the output limit.

        Raise RejectedError if the prompt has no sentence.
        """
        context = prompt.document.text if prompt.document else "\n".join(prompt.contents())
        # The same sentences at every size: characters, because tokens would be counted each time.
        end = context[-_CONTEXT_TOKENS * 4 :]
        ends = sentence_ends(end)
        sentences = [
            end[a:b].strip() for a, b in zip((0, *ends[:-1]), ends, strict=True) if b - a > 1
        ][1:]
        if not sentences:
            raise RejectedError(f"engine {self._entry.engine!r} finds no sentence in the prompt")
        seed = decoding.sampling.seed if decoding.sampling else 0
        rng = np.random.default_rng([int(prompt.hash[:12], 16), seed])
        turns = range(1 + 4_000 // len(sentences))  # no sentence repeats before all are written
        stream = (sentences[i] for _ in turns for i in rng.permutation(len(sentences)))
        text = self._lost(prompt, rng) or " ".join(stream)
        return self._cut(text, decoding.max_output_tokens), "length"

    def _lost(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return ""

    def _cut(self, text: str, tokens: int) -> str:
        words = text[: tokens * 8].split(" ")

        def tokens_of_first(count: int) -> int:
            return self.count(" ".join(words[:count]))

        more = bisect.bisect_right(range(2, len(words) + 1), tokens, key=tokens_of_first)
        return " ".join(words[: 1 + more])


class PlantedWriter(HumanWriter):
    """Writer that repeats one phrase endlessly in a fraction of its answers to long prompts."""

    def _lost(self, prompt: Prompt, rng: np.random.Generator) -> str:
        tokens, share = self._identity["law"]
        if self._tokens(prompt) >= tokens and rng.random() < share:
            return "and then the door was closed again, " * 2_000
        return ""
