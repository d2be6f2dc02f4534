"""Measure the texts of a finished run again."""

from __future__ import annotations

from contextcliff_dagster.contracts import DataError
from contextcliff_dagster.experiments.continuation.compat.coherence import COHERENCE_KEYS, Embed
from contextcliff_dagster.experiments.continuation.compat.metrics import Figures, text_metrics
from contextcliff_dagster.experiments.continuation.compat.runs import ContextResult, Run


def reanalysed(run: Run, familiar: frozenset[str] | None = None, embed: Embed | None = None) -> Run:
    """Return ``run`` with new figures of its kept texts, and averages of those.

    The author's figures stay as they are, as in the reference. So do those of coherence without
    ``embed``, and those of familiar words without ``familiar`` (both as in `text_metrics`).

    Raises:
        DataError: a text was not kept.
    """
    contexts = {}
    for size, context in run.contexts.items():
        texts = [one.get("continuation_text") for one in context.rounds]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"The run {run.name} has no texts of context size {size:,}; name a folder whose "
                "context_N_results.json files have continuation_text in every round."
            )
        rounds = tuple(
            {**one, **_figures(str(text), familiar, embed)}
            for one, text in zip(context.rounds, texts, strict=True)
        )
        contexts[size] = ContextResult(size, rounds, context.info)
    return Run(run.metadata, contexts, run.author, run.context_lengths)


def _figures(text: str, familiar: frozenset[str] | None, embed: Embed | None) -> Figures:
    kept = COHERENCE_KEYS if embed is None else ()
    return {k: v for k, v in text_metrics(text, familiar, embed).items() if k not in kept}
