"""Every command that README and docs print is run as printed, page by page, or has a reason here.

Nothing is replaced but what these tables declare. A command in a sentence without an argument only
names it, and need only exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from contextcliff_dagster.cli.app import app
from contextcliff_dagster.corpora.python_source import corpus as python_source
from contextcliff_dagster_tests.support.extension_tables import added
from contextcliff_dagster_tests.support.journeys import (
    PAGES,
    Command,
    answering,
    commands_of,
    write_world,
)
from contextcliff_dagster_tests.support.measured_stores import FEW, copy_of_few
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.terminal import call

World = tuple[Path, str, Mapping[str, str]]
"""The folder that a reader works in, the endpoint's address, and the variables that are set."""
_NAME = r"\bcontextcliff\b"
COMMANDS = [command for page in PAGES for command in commands_of(page)]

NOT_RUN = {
    "": "writes a script for a shell into a file; cli/shell/test_completion.py",
    "baseline dismiss my-study 2026-11-23T0200 --reason outage": "needs a false alarm; "
    "cli/commands/test_baseline.py",
    "analyze results/my-model.jsonl --documents longbench_v2/data.json": "needs LongBench's file; "
    "test_analyze_logs.py runs it on rows of its own",
    "analyze results/my-model/synthetic": "needs RULER's files; test_row_formats.py has such",
    "analyze qa1_*.csv --pool": "needs BABILong's files; test_analyze_logs.py has such",
    "analyze output/kilt_nq_*.json --pool --metric substring_exact_match": "needs HELMET's files; "
    "test_analyze_logs.py has such",
    "profile --model reference-long --kv_policy snapkv --kv_budget 0.2": "needs `make install-kv`; "
    "see the tests marked kv",
    "profile quick --kv_policy snapkv,random --kv_budget 0.5,0.2": "likewise",
    "profile --kv_policy snapkv --kv_budget 0.2": "likewise",
    "--data questions.jsonl --model reference-long --kv_policy H2O --kv_budget 0.5 --task lookup": (
        "likewise"
    ),
    "compare reference:reference-long+none reference:reference-long+snapkv@0.2": "likewise",
    "profile --model smollm2-135m": "needs `make local-model`; see the tests marked local_model",
    "studies rename OLD NEW": "names of the reader's own; defs/test_renamed_study.py",
    "profile NEW": "likewise",
    "report NEW": "likewise",
    "ui --workspace mine.yaml": "needs a project of the reader's own; defs/test_own_project.py",
    "profile local --data notes --questions recall": "needs the same model",
    "profile local": "needs the same model; what follows is run without it",
    "profile kv-local": "needs `make install-kv` and a model, and an hour of two cores",
    "profile local --kv_policy q4_0": "needs the model, and half an hour of two cores",
    "profile kv-local --model smollm2-vllm --kv_policy fp8": "needs vLLM and the model as a folder",
    "export local exported/local.zip": "is measured with that model",
    "serve reference-long": "serves until it is stopped; test_serve.py",
    "ui --no-daemon": "serves until it is stopped; test_ui.py",
    "ui --workspace FILE": "likewise, of a workspace of the reader's own",
    "report data-my-1f0c2a": "the name is made of the file's path; test_ad_hoc_study.py",
    "atlas build SOURCES --tables DIR": "tables of the reader's own; atlas/test_site.py",
    "profile --data PATH": "the lines with --data above it, with any path",
    "profile my-study --batch": "needs a provider's batches; cli/commands/test_batches.py",
    "profile my-study --batch --dry-run": "likewise",
    "batches cancel ID": "likewise",
    "answers quick --show 57a3cb30": "ids depend on the sample; cli/commands/test_answers.py",
    **added("NOT_RUN"),
}
"""Command -> why it is not run here."""

REPLACED = {
    "STUDY": "quick",
    "--campaign NAME": "--campaign {campaign}",
    "report NAME": "report quick",
    "http://127.0.0.1:8000/v1": "{url}",
    "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318": "OTEL_TRACES_EXPORTER=none",
}
"""Words in commands -> what a reader writes in their place."""

MORE = {
    "--data my.jsonl --model my-server": "--samples-per-bin 2",
    "--data my-documents --model my-server": "--samples-per-bin 2",
    "calibrate --per-bin 20 --bins 10 --questions 1-8 --score graded": "--simulations 40",
    "calibrate my-study": "--simulations 40",
    "card my-model": "--study my-study",
    "init": "--base-url {url} --data contracts",
    "init --model my-server --data contracts": "--name my-server",
    "init --preset openai --model-id gpt-4.1-mini-2025-04-14 --data contracts --tolerance 20%": (
        "--no-call --name openai"
    ),
    "models add fast --preset ollama --model-id llama3.2:3b": "--no-call",
    "profile": "--samples-per-bin 2",
    "profile --data contracts --model my-model": "--samples-per-bin 2",
    "profile quick": "--samples-per-bin 2",
    "profile quick --controls no_context": "--samples-per-bin 2",
    "profile reference": "--samples-per-bin 2",
    "profile reference-two-hop": "--samples-per-bin 2",
    "profile --model Qwen2.5-7B --task multi_hop_qa": "--samples-per-bin 2",
    "profile --dataset python-source --model my-model": "--samples-per-bin 1",
    "profile STUDY --pilot 5 --until 5%": "--model reference-short --budget 0",
    **added("MORE"),
}
"""Options that make a command shorter, or answer what it would ask on a terminal."""

CODES = {
    "guard safe-context.json --tokens 48000": 4,
    "baseline check my-study": 0,
    "profile my-study --sentinel": 0,
}
"""Exit codes other than 0."""

QUICK = " ".join(("profile quick", *FEW))
"""Found in the store that the journeys begin with."""
BEFORE: Mapping[str, tuple[str, ...]] = {
    "README.md": (QUICK,),
    "docs/study.md": (
        "profile quick --samples-per-bin 2",
        "campaign new my-study --name 2026-11-01",
        "profile my-study",
        "campaign new my-study --name 2026-11-21",
        "profile my-study",
        "profile prompt-one",
        "profile prompt-two",
    ),
    "docs/gateway.md": ("profile my-study",),
    "docs/method.md": (QUICK,),
    "docs/policy.md": ("profile my-study",),
    "docs/python.md": (QUICK,),
    "docs/regression.md": (QUICK, "profile my-study", "baseline set my-study"),
    "docs/reports.md": (QUICK,),
}
"""Page -> what its reader has done before."""


def line_of(command: Command) -> str:
    """The arguments as one text: how the tables name a command."""
    return " ".join(command.words)


def only_named(command: Command) -> bool:
    """Whether a sentence only names a command: no word of it is an argument."""
    return command.inline and not _resolved(command.words)[1]


class Resolved(NamedTuple):
    command: click.Command
    arguments: list[str]


def _resolved(words: list[str]) -> Resolved:
    """The subcommand that is meant and the rest of the words; KeyError where there is none."""
    command: click.Command = app
    rest = ["profile", *words] if words and words[0].startswith("-") else list(words)
    while rest and isinstance(command, click.Group):
        context = click.Context(command)
        if "measure" in command.commands and rest[0] not in command.commands:
            return Resolved(command.commands["measure"], rest)
        if rest[0].startswith("-") or (
            command.invoke_without_command and rest[0] not in command.list_commands(context)
        ):
            break
        inner = command.get_command(context, rest[0])
        if inner is None:
            raise KeyError(rest[0])
        command = inner
        del rest[0]
    return Resolved(command, rest)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with answering() as url:
        yield url


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> World:
    folder = tmp_path_factory.mktemp("reader")
    return folder, endpoint, write_world(folder, endpoint, copy_of_few(tmp_path_factory))


def _pages() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        name = page.relative_to(CHECKOUT).as_posix()
        if any(not only_named(c) and line_of(c) not in NOT_RUN for c in commands_of(page)):
            found.append(pytest.param(page, id=name, marks=pytest.mark.timeout(1800)))
    return found


@pytest.mark.parametrize("page", _pages())
def test_a_reader_can_type_what_a_page_prints(
    page: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url, variables = world
    monkeypatch.chdir(folder)
    # Of this machine's Python files; reading 2,000 takes half a minute.
    monkeypatch.setitem(python_source._NUMBERS, "files", (150, 1))
    name = page.relative_to(CHECKOUT).as_posix()
    for line in BEFORE.get(name, ()):
        ended = call(*line.split(), env=variables)
        assert ended.code == 0, f"{line}: {ended.err}"
    for command in commands_of(page):
        line = line_of(command)
        if line in NOT_RUN or only_named(command):
            continue
        arguments = _arguments(command, url, _campaign(variables))
        ended = call(*arguments, env={**variables, **_variables(command, url)})
        assert ended.code == CODES.get(line, 0), f"{command.text}\n{ended.err}\n{ended.out}"
        assert "Traceback" not in ended.err


def _campaign(variables: Mapping[str, str]) -> str:
    """The newest one of the study `quick`; the day may be over since it was measured."""
    measured = Path(variables["CONTEXTCLIFF_HOME"], "quick", "predictions").glob("campaign=*")
    return max((path.name.partition("=")[2] for path in measured), default="")


def _replaced(text: str, url: str, campaign: str = "") -> str:
    for words, written in REPLACED.items():
        text = re.sub(rf"(?<!\S){re.escape(words)}(?!\S)", written, text)
    return text.replace("{campaign}", campaign).replace("{url}", url)


def _arguments(command: Command, url: str, campaign: str) -> list[str]:
    line = line_of(command)
    words = _replaced(f"{line} {MORE.get(line, '')}", url, campaign).split()
    found = ([str(path) for path in Path().glob(word)] if "*" in word else [word] for word in words)
    return [*chain.from_iterable(found)]


def _variables(command: Command, url: str) -> dict[str, str]:
    before = _replaced(re.split(_NAME, command.text)[0], url)
    return dict(word.split("=", 1) for word in before.split() if "=" in word)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c.page}: {line_of(c)}")
def test_every_command_is_one_that_there_is(command: Command) -> None:
    meant, arguments = _resolved(command.words)
    if command.words and not only_named(command):
        meant.make_context("contextcliff", arguments, resilient_parsing=False).close()


def test_the_tables_name_nothing_that_no_page_prints() -> None:
    lines = {line_of(command) for command in COMMANDS}
    for table in (NOT_RUN, MORE, CODES):
        assert set(table) <= lines
    assert not set(NOT_RUN) & (set(MORE) | set(CODES))
    printed = "\n".join(command.text for command in COMMANDS)
    assert all(words in printed for words in REPLACED)
    pages = {command.page for command in COMMANDS}
    assert set(BEFORE) <= pages
    assert sum(not only_named(c) and line_of(c) not in NOT_RUN for c in COMMANDS) >= 40


def test_a_command_that_is_none_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        _resolved(["nosuch"])
    meant, arguments = _resolved(["profile", "quick", "--nosuch"])
    with pytest.raises(click.UsageError):
        meant.make_context("contextcliff", arguments)
