"""One small call to a model and what it adds to the model's entry, and three short questions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.ad_hoc_study import LOOKED_AT
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.contracts import CorpusError, EngineError

if TYPE_CHECKING:
    from contextcliff_dagster.corpora.corpus import Entry
    from contextcliff_dagster.inference.execution.trial_call import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.models.new_entry import NewEntry
    from contextcliff_dagster.studies import Study

_QUESTIONS = 3


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


def ask_shortest(study: Study, entry: ModelEntry, within_s: float) -> list[dict[str, Any]]:
    """Ask a new study's questions on the shortest of its first documents, one on each.

    Returned are the replies with their scores, also said on stderr; [] where none came. They are
    in no ledger: measuring asks these questions again.
    """
    from contextcliff_dagster.corpora.registry import open_corpus
    from contextcliff_dagster.experiments.common.records import scoring_rules
    from contextcliff_dagster.inference.execution.trial_call import ask_prompts
    from contextcliff_dagster.redaction import redact
    from contextcliff_dagster.scoring.evaluate import score_rows

    corpus = open_corpus(study.corpus.kind, study.corpus_options)
    first: dict[str, Entry] = {}
    with suppress(CorpusError):  # the sentence comes with the sample
        for one in islice(corpus.entries(), LOOKED_AT):
            first.setdefault(one.document.document_id, one)
    entries = sorted(first.values(), key=lambda one: len(one.document.text))[:_QUESTIONS]
    if not entries:
        return []
    recipe, rules = study.recipe(), scoring_rules(study, study.recipe())
    prompts = [recipe.render(one.document.text, one.example.question) for one in entries]
    say(f"The study's questions on {len(prompts)} short documents, {len(prompts)} calls more ...")
    try:
        work = ask_prompts(entry, prompts, recipe.max_output_tokens, within_s)
        answers = asyncio.run(in_words(work))
    except EngineError as error:
        say(f"Note: no answers to them: {error}")
        return []
    examples = {one.example.example_id: one.example for one in entries}
    texts = {one.document.document_id: one.document.text for one in entries}
    rows = [
        {"example_id": name, "raw_output": answer.text}
        for name, answer in zip(examples, answers, strict=True)
    ]
    asked = []
    for row, example, scored in zip(
        rows, examples.values(), score_rows(rows, examples, texts.__getitem__, rules), strict=True
    ):
        question, reply = redact(example.question), redact(row["raw_output"])
        accepted, score = list(map(redact, example.answers)), scored["score"]
        say(f"  {question}")
        say(f"    reply: {reply or '(nothing)'}")
        say(f"    score {score:g}; accepted: {' | '.join(accepted)}")
        asked.append({"question": question, "accepted": accepted, "reply": reply, "score": score})
    if not any(one["score"] for one in asked):
        say("Note: none of them counts as right; compare replies and accepted answers first.")
    return asked


def _say_what_was_found(trial: Trial) -> None:
    from contextcliff_dagster.inference.execution.cost_estimate import unknown_window
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
