"""Prompts as they will be sent, for `prepare --show-prompt`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.answer_table import visible
from contextcliff_dagster.cli.options import together
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.reporting.wording.number_format import count

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall
    from contextcliff_dagster.run.study import Prepared
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_SHOWN = 400
"""Characters shown of each end of a document."""

_OPTIONS = together(
    click.option(
        "--show-prompt",
        "examples",
        is_flag=False,
        flag_value=1,
        type=click.IntRange(1, 10_000),
        metavar="[N]",
        help="Show the messages of N examples (1), from short to long, as they will be sent.",
    ),
    click.option("--whole", is_flag=True, help="With --show-prompt: do not shorten documents."),
)


@dataclass(frozen=True, slots=True)
class ShownPrompts:
    """The prompts of how many ``examples`` to show, and whether with ``whole`` documents."""

    examples: int
    whole: bool

    def calls(self, prepared: Prepared, store: Store) -> list[PlannedCall]:
        """Return the calls of these examples (`experiments.common.prompts.spread_calls`)."""
        from contextcliff_dagster.experiments.common.prompts import spread_calls
        from contextcliff_dagster.experiments.common.study_run import StudyRun
        from contextcliff_dagster.experiments.lookup import partitioned

        with StudyRun.open(prepared.study, store) as run:
            return spread_calls(run, partitioned(prepared.study), self.examples)


def prompt_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` these options as one ``prompts: ShownPrompts | None``."""

    @functools.wraps(command)
    def gathered(examples: int | None, whole: bool, **given: Any) -> None:
        if whole and examples is None:
            raise StudyError("--whole goes with --show-prompt; add that, or leave it out.")
        command(prompts=ShownPrompts(examples, whole) if examples else None, **given)

    return _OPTIONS(gathered)


def without_temperature(study: Study) -> list[str]:
    """The models of ``study`` whose servers are sent no temperature (their `quirks`)."""
    from contextcliff_dagster.inference.models.engine_table import engine_spec
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    models = load_models()
    entries = {name: get_model(name, models) for name in study.models}
    return [
        name
        for name, entry in entries.items()
        if entry.quirks.temperature == "omit" and engine_spec(entry.engine).remote
    ]


def as_object(call: PlannedCall, omitting: Sequence[str]) -> dict[str, Any]:
    """A prompt as a JSON object, nothing left out. ``sha256`` is the ``prompt_hash`` of the ledger
    and of the predictions; ``omitting`` are the models that get no temperature."""
    prompt, recipe = call.prompt(), call.recipe
    return {
        "bin": call.bin,
        "length_tokens": call.length_tokens,
        "example_id": call.example.example_id,
        "replicate": call.replicate,
        "mode": prompt.mode,
        "messages": prompt.as_dicts() or None,
        "prompt": prompt.text if prompt.mode == "completion" else None,
        "temperature": recipe.temperature,
        "temperature_omitted_for": [*omitting],
        "max_output_tokens": recipe.max_output_tokens,
        "sha256": prompt.hash,
    }


def as_lines(call: PlannedCall, temperature: str, *, whole: bool) -> Iterator[str]:
    """A prompt for a terminal: each message under its role; ``whole``: with all of the document.
    ``temperature``: `temperature_words`."""
    prompt, recipe = call.prompt(), call.recipe
    wording = f", wording {call.replicate + 1} of {recipe.replicates}" * (recipe.replicates > 1)
    yield (
        f"Prompt of {visible(call.example.example_id)}: bin {call.bin}, "
        f"{count(call.length_tokens, 'token')}, mode {prompt.mode}{wording}; "
        f"at most {count(recipe.max_output_tokens, 'token')} of output, {temperature}"
    )
    named = dict(enumerate(prompt.messages))
    for place, text in enumerate(prompt.contents()):
        yield f"[{named[place].role if named else 'prompt'}]"
        shown = text if whole else _without_middle(text, call.document)
        for line in shown.split("\n"):
            yield visible(line)
    yield f"[end, sha256 {prompt.hash[:16]}...]"


def temperature_words(call: PlannedCall, models: Sequence[str], omitting: Sequence[str]) -> str:
    """What ``models`` are sent, of whom ``omitting`` get none."""
    if not omitting:
        return f"temperature {call.recipe.temperature:g}"
    if len(omitting) == len(models):
        return "no temperature (quirks in models.yaml)"
    whom = ", ".join(map(visible, omitting))
    return f"temperature {call.recipe.temperature:g} (none to {whom}: quirks in models.yaml)"


def _without_middle(text: str, document: str) -> str:
    """``text`` without the middle of ``document``, if that is long and occurs in it."""
    left = len(document) - 2 * _SHOWN
    if left <= _SHOWN or document not in text:
        return text
    note = f"\n[... {left:,} characters left out; --whole shows them ...]\n"
    return text.replace(document, document[:_SHOWN] + note + document[-_SHOWN:], 1)
