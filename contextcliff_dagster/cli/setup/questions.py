"""Questions on a terminal, and how a command is named that the user is to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click

from contextcliff_dagster.cli.errors import Interrupted, is_interruption, say, sentence
from contextcliff_dagster.contracts import ContextCliffError

T = TypeVar("T")


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(text: str, default: str | None = None) -> str:
    """What is typed, blanks around it dropped."""
    return str(click.prompt(text, default=default, err=True)).strip()


def ask_until(question: Callable[[], T]) -> T:
    """Ask again as long as the answer is an error, which is shown."""
    while True:
        try:
            return question()
        except ContextCliffError as error:
            say(f"  {sentence(str(error))}")


def choose(text: str, choices: Sequence[str]) -> int:
    """Number of the choice that is typed, from 0; the first is the default."""
    for number, choice in enumerate(choices, start=1):
        say(f"  {number}  {choice}")

    def number_of(typed: str) -> int:
        if not (typed.strip().isdecimal() and 1 <= int(typed) <= len(choices)):
            raise click.UsageError(f"type a number from 1 to {len(choices)}.")
        return int(typed)

    picked = click.prompt(text, value_proc=number_of, default="1", err=True)
    return int(picked) - 1


@contextmanager
def nothing_written_on_interruption() -> Iterator[None]:
    """Make Ctrl-C say that no file was changed."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, click.Abort) or is_interruption(error):
            raise Interrupted("no file was changed") from error
        raise


def typed(*words: str) -> str:
    """The command line ``contextcliff WORDS`` as it works in this shell."""
    program = "contextcliff"
    if Path(sys.argv[0]).name == program and shutil.which(program) is None:
        program = sys.argv[0]
    return shlex.join([program, *words])
