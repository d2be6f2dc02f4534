"""`init`, and the work of `models add`: entries and studies are checked, then written at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from contextcliff_dagster.cli.display.output import print_either
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.options import tolerance_share
from contextcliff_dagster.cli.options import common_options, share_option
from contextcliff_dagster.cli.setup.endpoint import (
    EndpointOptions,
    chosen_endpoint,
    chosen_model,
    endpoint_options,
    new_entry,
    same_entry,
)
from contextcliff_dagster.cli.setup.questions import can_ask, nothing_written_on_interruption, typed
from contextcliff_dagster.cli.setup.study_file import (
    StudyWishes,
    check_data,
    check_name,
    new_study,
    with_answers,
    with_defaults,
    written,
)
from contextcliff_dagster.cli.setup.trial import ask_shortest, tried
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.inference.execution.trial_call import Trial
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.models.new_entry import NewEntry


@click.command()
@endpoint_options
@click.option(
    "--model", metavar="NAME", help="Name in models.yaml; an entry that exists is used as it is."
)
@click.option("--data", metavar="PATH|URL", help="A folder of documents, or a table of examples.")
@click.option(
    "--questions", metavar="FILE|recall", help="Questions on them: a table, or verbatim recall."
)
@share_option(
    "--tolerance",
    "Loss that is acceptable at the cap, e.g. 30%: up to 3 of 10 right answers lost.",
    callback=tolerance_share,
)
@click.option("--name", metavar="NAME", help="Name of the study (default: after the data).")
@click.option("--yes", is_flag=True, help="Ask nothing; take the defaults.")
@common_options
def init(
    endpoint: EndpointOptions,
    model: str | None,
    data: str | None,
    questions: str | None,
    tolerance: float | None,
    name: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Set up a measurement: an endpoint in models.yaml, and a study of your documents.

    On a terminal it asks; elsewhere, or with --yes, it takes options and defaults. Both files are
    written after one small call has shown that the model answers. Three calls more show its replies
    to questions on short documents.
    """
    from contextcliff_dagster.atlas.known import sampling_range
    from contextcliff_dagster.studies import load_study

    asking = can_ask() and not yes
    wishes = StudyWishes(data, questions, tolerance, name)
    if name is not None:
        check_name(name)
    if data is not None:
        check_data(data)
    if not asking and data is None:
        raise StudyError(
            "No data are named: add --data PATH, a folder of documents or a table of examples"
            + ("" if model or endpoint.named else ", and --preset NAME or --base-url URL")
            + "."
        )
    with nothing_written_on_interruption():
        entry, new, trial = _model(endpoint, model, asking=asking)
        wishes = with_answers(wishes) if asking else with_defaults(wishes) if yes else wishes
        reasons = bool(trial and trial.reasons)
        study = new_study(wishes, entry.name, entry.tokenizer, reasons=reasons)
        check_name(study.name)
        if new is None:
            with written(study) as study_file:
                models_file = None
        else:
            from contextcliff_dagster.inference.models.new_entry import added

            with added(new) as models_file, written(study) as study_file:
                pass
    command = _next(study_file, study.name)
    if models_file:
        say(f"Wrote model {entry.name} into {models_file}.")
    say(f"Wrote study {study.name} into {study_file}.")
    if (known := sampling_range(entry.model_id, entry.window_tokens)) is not None:
        say(f"Note: {known}")
    asked = []
    if trial is not None:
        asked = ask_shortest(load_study(study_file), trial.entry, endpoint.timeout)
    value = {
        "model": entry.name,
        "models_file": None if models_file is None else str(models_file),
        "study": study.name,
        "study_file": str(study_file),
        "window_tokens": trial.window_tokens if trial else entry.window_tokens,
        "asked": asked,
        "next": command,
    }
    print_either(value, f"Measure it with\n\n    {command}\n", as_json=as_json)


def add_model(endpoint: EndpointOptions, name: str | None, *, as_json: bool) -> None:
    """Add a model to models.yaml, after one small call.

    Raises:
        ContextCliffError: the endpoint cannot be used, or the name is taken; nothing is written.
    """
    from contextcliff_dagster.inference.models.new_entry import added, known_models

    asking = can_ask()
    with nothing_written_on_interruption():
        chosen = chosen_model(chosen_endpoint(endpoint, asking=asking), asking=asking)
        new, trial = new_entry(chosen, name, asking=asking)
        done = "Wrote" if new.name not in known_models() else "Unchanged:"
        with added(new) as path:
            pass
    window = trial.window_tokens if trial else new.checked().window_tokens
    command = typed("--data", "PATH", "--model", new.name)
    value = {"model": new.name, "models_file": str(path), "window_tokens": window, "next": command}
    print_either(
        value, f"{done} model {new.name} in {path}. Measure it: {command}", as_json=as_json
    )


def _model(
    endpoint: EndpointOptions, name: str | None, *, asking: bool
) -> tuple[ModelEntry, NewEntry | None, Trial | None]:
    """The model, its entry where that is new, and what one call has shown."""
    from contextcliff_dagster.inference.models.models_file import get_model
    from contextcliff_dagster.inference.models.new_entry import known_models

    entry = None
    if name is not None and not endpoint.named and (name in known_models() or not asking):
        entry = get_model(name, known_models())
        if endpoint.set_keys:
            raise StudyError(f"--set is for a new entry; edit that of {name} in models.yaml.")
    else:
        endpoint = chosen_model(chosen_endpoint(endpoint, asking=asking), asking=asking)
        if name is None and (entry := same_entry(endpoint)):
            say(f"models.yaml has this model at this address: {entry.name}. It is used as it is.")
    if entry is not None:
        heavy = entry.spec.needs_devices or entry.spec.needs_weights
        trial = None if heavy or endpoint.no_call else tried(entry, endpoint.timeout)
        return entry, None, trial
    new, trial = new_entry(endpoint, name, asking=asking)
    return new.checked(), new, trial


def _next(path: Path, name: str) -> str:
    """The command that measures the study."""
    from contextcliff_dagster.studies import load_study
    from contextcliff_dagster.studies.study_paths import leave_needed

    word = name if os.environ.get("CONTEXTCLIFF_STUDIES") else path.name
    # Its data lie elsewhere: that was just said, and need not be asked again.
    more = ["--trust-study"] if leave_needed(load_study(path), "corpus") else []
    return typed("profile", word, *more)
