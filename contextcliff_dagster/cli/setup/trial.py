"""One small call to a model, and what it adds to the model's entry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.contracts import EngineError

if TYPE_CHECKING:
    from contextcliff_dagster.inference.execution.trial_call import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.models.new_entry import NewEntry


def tried(entry: ModelEntry, within_s: float) -> Trial:
    """What one small call to ``entry`` shows; also said on stderr.

    Raises:
        EngineError: calls to it would fail.
    """
    from contextcliff_dagster.inference.execution.trial_call import try_model

    say(f"One small call to {entry.name} ...")
    trial: Trial = asyncio.run(in_words(try_model(entry, within_s)))
    _say_what_was_found(trial)
    return trial


async def in_words(work: Any) -> Any:
    """What ``work`` gives. Errors name options: models.yaml has no entry yet to correct."""
    try:
        return await work
    except EngineError as error:
        text = str(error).replace("into `base_url` in models.yaml", "as --base-url")
        for key in ("base_url", "model_id", "api_key_env"):
            option = f"--{key.replace('_', '-')}"
            text = text.replace(f"`{key}` in models.yaml", option).replace(f"`{key}`", option)
        raise EngineError(text) from None


def with_findings(new: NewEntry, trial: Trial) -> NewEntry:
    """The entry with the quirks that the call has found, and the window that the server reports."""
    given, comments, hints = dict(new.fields), dict(new.comments), list(new.hints)
    quirks = trial.entry.quirks.model_dump(exclude_defaults=True)
    if quirks:
        given["quirks"] = quirks
    if trial.loaded_window and "window_tokens" not in given:
        given["window_tokens"] = trial.loaded_window
        comments["window_tokens"] = "as the server reported it when this entry was written"
    if trial.window_tokens:
        hints = [hint for hint in hints if not hint.startswith("window_tokens")]
    return replace(new, fields=given, comments=comments, hints=hints)


def _say_what_was_found(trial: Trial) -> None:
    from contextcliff_dagster.inference.execution.window_check import unknown_window
    from contextcliff_dagster.redaction import redact

    answer = trial.answer
    said = repr(redact(answer.text, limit=40)) if answer.text.strip() else "an empty text"
    window = f"; window {trial.window_tokens:,} tokens" if trial.window_tokens else ""
    say(f"{trial.entry.name} answered {said} in {answer.duration_ms / 1000:.1f} s{window}.")
    if not trial.window_tokens:
        say(unknown_window(trial.entry.name))
    quirks = trial.entry.quirks.model_dump(exclude_defaults=True)
    if quirks.get("temperature") == "omit":
        say("Note: it takes no temperature of 0, so its answers vary from run to run.")
