"""The agents as engines of models.yaml: `visibility-attentive` and `visibility-random`."""

from __future__ import annotations

from typing import Any

import numpy as np

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.visibility.controls.agents import (
    ScriptedAgent,
    ignores_everything,
    uses_what_it_sees,
)
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.scripted import UNLIMITED, ScriptedEngine
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.recipe import Prompt

AGENTS_VERSION = 1
"""Part of the identity: raised when an agent answers a prompt differently."""
_AGENTS: dict[str, ScriptedAgent] = {
    "visibility-attentive": uses_what_it_sees,
    "visibility-random": ignores_everything,
}


def agent_identity(entry: ModelEntry) -> dict[str, Any]:
    """All that decides an agent's replies."""
    return {
        "engine": entry.engine,
        "agents_version": AGENTS_VERSION,
        "tokenizer": entry.tokenizer or "tiktoken:o200k_base",
        "window_tokens": entry.window_tokens or UNLIMITED,
    }


class Agent(ScriptedEngine):
    """Replies as its agent does; the prompt and the seed decide what it draws."""

    def __init__(self, entry: ModelEntry) -> None:
        super().__init__(entry, agent_identity(entry))
        self._agent = _AGENTS[entry.engine]

    def reply(self, prompt: Prompt, decoding: Decoding) -> tuple[str, str]:
        """Return the next configuration.

        Raises:
            RejectedError: the prompt is none of this experiment.
        """
        seed = decoding.sampling.seed if decoding.sampling else 0
        rng = np.random.default_rng([int(prompt.hash[:12], 16), seed])
        try:
            return self._agent(prompt.contents()[-1], rng), "stop"
        except (StudyError, ValueError, LookupError) as error:
            raise RejectedError(
                f"engine {self._entry.engine!r} reads prompts of the experiment `visibility` alone"
            ) from error
