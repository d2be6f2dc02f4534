"""Completion in bash, zsh and fish: which values there are for which option.

The shells ask by running the command with `_CONTEXTCLIFF_COMPLETE` set (click's protocol); what is
not known, or cannot be read, is no completion and never an error in the middle of a typed line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

Names = Callable[[], Iterable[str]]


class _OneOf(click.ParamType[str]):
    """Any text; completed from ``names``, and from files where ``files``."""

    name = "text"

    def __init__(self, names: Names, *, files: bool = False) -> None:
        self._names = names
        self._files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        items = [CompletionItem(incomplete, type="file")] if self._files else []
        with suppress(Exception):
            names = sorted(name for name in self._names() if name.startswith(incomplete))
            items += [CompletionItem(name) for name in names]
        return items


def add_completion(command: click.Command) -> None:
    """Let the parameters of ``command``, and of those below it, complete their values by name."""
    for parameter in command.params:
        if parameter.type is click.STRING and parameter.name in _VALUES:
            parameter.type = _VALUES[parameter.name]
    for inner in getattr(command, "commands", {}).values():
        add_completion(inner)


def _studies() -> Iterable[str]:
    from contextcliff_dagster.studies import load_studies

    return load_studies()


def _models() -> Iterable[str]:
    from contextcliff_dagster.inference.models.models_file import load_models

    return load_models()


def _data_sets() -> Iterable[str]:
    from contextcliff_dagster.corpora.benchmarks.benchmark_table import PUBLISHED

    return (*PUBLISHED, "python-source")


def _presets() -> Iterable[str]:
    from contextcliff_dagster.inference.models.presets import PRESETS

    return PRESETS


def _scores() -> Iterable[str]:
    from contextcliff_dagster.cli.measuring.options import PRIMARY_SCORES
    from contextcliff_dagster.scoring.scorers import scorer_names

    return (*PRIMARY_SCORES, *scorer_names())


def _controls() -> Iterable[str]:
    from contextcliff_dagster.cli.measuring.options import CONTROLS

    return (*CONTROLS, ",".join(CONTROLS))


def _nothing() -> Iterable[str]:
    return ()


_VALUES = {
    "study": _OneOf(_studies, files=True),
    **dict.fromkeys(("model", "models", "a", "b"), _OneOf(_models)),
    "preset": _OneOf(_presets),
    "dataset": _OneOf(_data_sets),
    "tasks": _OneOf(lambda: ("lookup", "two_hop")),
    "score": _OneOf(_scores),
    "controls": _OneOf(_controls),
    "questions": _OneOf(lambda: ("recall",), files=True),
    "data": _OneOf(_nothing, files=True),
}
"""What completes a parameter of this name, in whatever command."""
