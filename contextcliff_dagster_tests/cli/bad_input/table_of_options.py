"""Every option that takes a number, a share, a name or a place to write to, with what is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from contextcliff_dagster.cli.app import app
from contextcliff_dagster_tests.cli.bad_input import bad_files
from contextcliff_dagster_tests.cli.bad_input.law import Case
from contextcliff_dagster_tests.support.extension_tables import added, tables

# A command line for every command that lacks nothing but what is tried.
LINES = {
    "profile": "profile quick",
    "prepare": "prepare quick",
    "report": "report quick",
    "answers": "answers quick",
    "analyze": "analyze s.csv",
    "compare": "compare a b",
    "calibrate": "calibrate quick",
    "baseline set": "baseline set quick",
    "baseline show": "baseline show quick",
    "baseline check": "baseline check quick",
    "policy": "policy quick",
    "guard": "guard p.json",
    "card": "card reference-short",
    "models": "models",
    "models diff": "models diff reference-short reference-long",
    "models add": "models add mine --base-url http://127.0.0.1:9/v1",
    "init": "init --base-url http://127.0.0.1:9/v1",
    "studies": "studies",
    "studies rename": "studies rename quick mine",
    "studies retire": "studies retire quick",
    "tokenizers": "tokenizers",
    "campaign list": "campaign list",
    "campaign new": "campaign new quick",
    "doctor": "doctor --offline",
    "serve": "serve reference-short",
    "ui": "ui",
    "export": "export quick out.zip",
    "import": "import out.zip",
    "gallery": "gallery out.zip",
    "atlas build": "atlas build docs",
    "atlas show": "atlas show nosuch",
    **added("LINES"),
}
_NUMBERS = ("abc", "", "nan", "inf", "-1", "1e400", "1" * 30, "1" * 5_000, "0x10", "1,5")
# An option that may go without a value takes -1 for another option.
_ACCEPTED = {
    "--show-prompt": ("-1",),
    "--seed": ("1" * 30,),
    "--delay-ms": (),
    "--budget": ("1" * 30,),
    "--max-samples": ("1" * 30,),
}
_CALLBACKS = {
    "analyze s.csv --tolerance": ("nan", "inf", "0", "1", "-5%", "200%", "", "x", "1e999"),
    "analyze s.csv --confidence": ("nan", "0.2", "1", "-5%", "100%", "", "x"),
    "analyze s.csv --ttft-limit": ("nan", "0s", "2h", "-1s", "", "9" * 400 + "s"),
    "calibrate quick --tolerance": ("nan", "0", "1", "x"),
    "calibrate quick --confidence": ("nan", "0.2", "1", "x"),
    "calibrate quick --questions": ("0", "-1", "5-1", "x", "1001", "", "1" * 5_000),
    "profile quick --until": ("nan", "0%", "90%", "x", "", "inf%"),
    "profile quick --ttft-limit": ("nan", "0s", "x", "-1s", "1e5s"),
    "profile quick --tolerance": ("nan", "inf", "0", "1", "10", "-5%", "200%", "", "x", "1e999"),
    "report quick --tolerance": ("nan", "0", "100%", "x"),
    "profile quick --score": ("", "x", "em,f1", "text,numeric", "em,", "EM", "\x00", "x" * 5_000),
    "report quick --score": ("", "x", "f1,em"),
    "profile quick --kv_policy snapkv --kv_budget": (
        "",
        ",",
        "0.5,",
        "0",
        "-.5",
        "0.09",
        "1.01",
        "50%",
        "nan",
        "inf",
        "x",
        "1e-999",
        "9" * 400,
    ),
    "profile quick --kv_policy": ("snapkv", "random", "knorm,h2o"),
    "profile quick --kv_budget 0.5 --kv_policy": (
        "",
        ",",
        "lru",
        "snapkv,",
        "none",
        "q4_0",
        "fp8",
        "snapkv,q8_0",
        "snapkv@0.2",
        "\x00",
    ),
    "models add mine --preset": ("nosuch", "", "OpenAI ", "\x00"),
    "init --preset": ("nosuch", "x" * 5_000),
    "profile quick --controls": ("x", "", "no_context,,oracle", "\x00"),
    **added("VALUES"),
    "policy quick --expires": ("0", "-1", "2026-13-45", "x", "", "99999", "1" * 5_000),
}
_NAMES = {
    "escape codes": "a\x1b[2J\nb",
    "NUL": "a\x00b",
    "emoji": "\U0001f9e8",
    "5,000 characters": bad_files.LONG_NAME,
    "path upwards": "../../etc",
    "half a character": "a\udcffb",
}
_NAMED = (
    "profile {}", "prepare {}", "report {}", "calibrate {}", "policy {}", "export {} out.zip",
    "baseline set {}", "baseline show {}", "baseline check {}", "campaign new {}",
    "campaign list {}", "compare {} b", "compare a {}", "compare a b --study {}",
    "card {}", "card reference-short --study {}", "card reference-short --campaign {}",
    "models diff {} reference-short", "serve {}", "studies retire {}", "studies rename {} a",
    "studies rename quick {}",
    "profile quick --model {}", "prepare quick --model {}", "profile --task {}",
    "profile --dataset {}", "profile quick --campaign {}", "campaign new quick --name {}",
    "profile quick --kv-policy {}", "prepare --data {}", "profile --data {} --model m",
    "prepare --data docs --questions {}", "profile quick --prompt {}", "prepare quick --prompt {}",
    "report quick --prompt {}",
    "analyze {}", "analyze s.csv --tokenizer {}", "analyze s.csv --metric {}",
    "analyze s.csv --documents {}", "analyze s.csv --by {}", "analyze s.csv --score {}",
    "guard {} --tokens 1", "guard p.json --file {}", "guard p.json --model {} --tokens 1",
    "guard p.json --file s.csv --tokenizer {}", "guard p.json --tokens 1 --identity {}",
    "ledger export {} out", "ledger prune {}", "import {}", "gallery {}", "atlas build {}",
    "atlas show {}", "{}",
    "answers {}",
    "answers quick --campaign {}", "models {}", "report quick --campaign {}",
    "policy quick --campaign {}",
    *(template for one in tables() for template in getattr(one, "NAMED", ())),
)  # fmt: skip


def scores() -> str:
    """A small table of scores that `analyze` takes."""
    rows = (f"{length},{length % 3 and 1}" for length in range(100, 6_000, 50))
    return "\n".join(["length_tokens,score", *rows, ""])


def _files(folder: Path) -> None:
    (folder / "s.csv").write_text(scores())
    (folder / "p.json").write_text(bad_files.policy(identity="abc"))
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("One fine day. " * 40)


def commands() -> dict[str, click.Command]:
    """Every command of the product by its words."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, words: str) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{words} {name}".strip())
        if not isinstance(command, click.Group) or command.invoke_without_command:
            found[words] = command

    walk(app, "")
    return found


def _short(value: str) -> str:
    return ascii(value) if len(value) < 20 else f"{len(value):,} x {value[0]}"


def _numeric() -> Iterator[Case]:
    for words, command in commands().items():
        for parameter in command.params:
            if not isinstance(parameter.type, click.IntRange | click.FloatRange):
                continue
            option = parameter.opts[0]
            for value in _NUMBERS:
                if value in _ACCEPTED.get(option, ()):
                    continue
                line = (*LINES[words].split(), option, value)
                yield Case(f"{words} {option}={_short(value)}", line, (option,), _files)


def _by_callback() -> Iterator[Case]:
    for line, values in _CALLBACKS.items():
        for value in values:
            yield Case(f"{line}={_short(value)}", (*line.split(), value), (), _files)


def _unknown() -> Iterator[Case]:
    for words in commands():
        for line, word in ((f"{words} --nosuch", "--nosuch"), (f"{words} --debug=5", "--debug")):
            yield Case(line, tuple(line.split()), (word,))


def _names() -> Iterator[Case]:
    for template in _NAMED:
        for kind, value in _NAMES.items():
            line = tuple(part.replace("{}", value) for part in template.split())
            yield Case(f"{template}: {kind}", line, (), _files)


_TARGETS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": bad_files.NO_FILES["pipe"],
    "a device": lambda path: path.symlink_to("/dev/full"),
    "under a file": lambda path: None,
    "a long name": lambda path: None,
    "a NUL": lambda path: None,
}
_WRITERS = {
    "analyze s.csv --quick --json {}": "r.json",
    "analyze s.csv --quick --out {}": "r",
    "compare s.csv s.csv --out {}": "r",
    "serve reference-short --port 0 --request-log {}": "r.jsonl",
}


def _outputs() -> Iterator[Case]:
    for template, name in _WRITERS.items():
        for kind, put in _TARGETS.items():
            if kind == "a folder" and not name.endswith(".jsonl"):
                continue
            target = {
                "under a file": f"s.csv/{name}",
                "a long name": bad_files.LONG_NAME + name,
                "a NUL": f"\x00{name}",
            }.get(kind, name)

            def make(folder: Path, put: Callable[[Path], object] = put, name: str = name) -> None:
                _files(folder)
                put(folder / name)

            line = tuple(part.replace("{}", target) for part in template.split())
            yield Case(f"{template}: {kind}", line, (), make)


def cases() -> Iterator[Case]:
    """All of them."""
    for table in (_numeric, _by_callback, _unknown, _names, _outputs):
        yield from table()
