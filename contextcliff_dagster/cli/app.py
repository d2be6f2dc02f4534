"""The `contextcliff` command and the table of its subcommands."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from contextcliff_dagster.cli.errors import INTERRUPTED, guarded, shown_arguments
from contextcliff_dagster.cli.shell import add_completion, ended_by_signals
from contextcliff_dagster.contracts.extensions import extensions, load_address

_GROUPS = {
    "Start": {
        "init": "Set up a measurement of your model on your documents.",
        "profile": "Measure what a study still lacks, and print its report.",
        "answers": "List questions, accepted answers and the model's answers.",
        "report": "Print a study's report, made current without a call.",
    },
    "Use a cap": {
        "policy": "Write the safe cap into a file that a gateway enforces.",
        "guard": "Check a call against a policy's cap.",
        "serve": "Serve a model as an OpenAI-compatible endpoint.",
        "ui": "Open the Dagster UI with the assets loaded.",
    },
    "Compare": {
        "compare": "Compare two measurements, paired by example where possible.",
        "baseline": "Pin a campaign, and compare later ones with it.",
        "gallery": "Build a static site of exported studies.",
        "atlas": "Show published results of others, or build a site of them.",
    },
    "Other experiments": {},  # of the extensions
    "Look after": {
        "prepare": "Freeze the sample of a study, and estimate the cost.",
        "analyze": "Find the verdict and the safe cap for scores you already have.",
        "calibrate": "Simulate a design: false alarms, unsafe caps, power.",
        "studies": "List the studies, retire or rename one.",
        "campaign": "Start another dated measurement of a study, or list them.",
        "models": "List the models, add one, or compare two.",
        "tokenizers": "List the tokenizers that count lengths.",
        "batches": "List the batches of calls at providers, cancel or resume them.",
        "ledger": "Inspect, verify, export or prune the record of every call.",
        "export": "Write a study with its sample and its calls to one file.",
        "import": "Import an exported study into this store.",
        "card": "Write a block for a model card, JSON-LD and a badge.",
        "doctor": "Check what is installed, reachable and writable.",
    },
}
"""Section of the help -> command -> one-line summary."""
_MODULES = {
    "init": ".setup.init",
    "prepare": ".commands.profile",
    "policy": ".commands.policy",
    "guard": ".commands.policy",
    "card": ".commands.gallery",
    "models": ".commands.listings",
    "tokenizers": ".commands.listings",
    "serve": ".commands.ui",
    "campaign": ".commands.listings",
    "export": ".commands.archive",
    "import": ".commands.archive",
    "batches": ".measuring.batches",
    "gallery": ".commands.gallery",
    "atlas": ".commands.atlas",
}
"""Command -> module, for commands not in `commands.<command>`."""
_OWN_OPTIONS = ("-h", "--help", "--version")


def _groups() -> dict[str, dict[str, str]]:
    """Return each section of the help with its commands and their summaries."""
    added = {name: row[0] for e in extensions().values() for name, row in e.commands.items()}
    return {**_GROUPS, "Other experiments": added}


def _address(command: str) -> str | None:
    """Return the import address of a command, or None if it does not exist."""
    if any(command in commands for commands in _GROUPS.values()):
        module = _MODULES.get(command, f".commands.{command}")
        return f"contextcliff_dagster.cli{module}:{'import_' if command == 'import' else command}"
    entries = (extension.commands.get(command) for extension in extensions().values())
    return next((row[1] for row in entries if row), None)


class _Commands(click.Group):
    """Subcommands loaded on demand; options without a subcommand mean `profile`.

    `contextcliff --data PATH --model NAME ...` is the whole command line for users who want one
    number without learning any terms.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in _groups().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (address := _address(cmd_name)) is None:
            return None
        command: click.Command = load_address(address)
        if ctx.resilient_parsing:
            add_completion(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # None of their modules is imported for this.
        width = max(map(len, self.list_commands(ctx)))
        for title, commands in _groups().items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl(
                        [(name.ljust(width), text) for name, text in commands.items()]
                    )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and _address(args[0]) is None and not ctx.resilient_parsing:
            broken = [name for name, extension in extensions().items() if extension.failure]
            missing = f". Extension {', '.join(broken)} is broken: see `contextcliff doctor`"
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(args[0], names, n=1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
            raise click.UsageError(
                f"There is no command {args[0]!r}; {known} `contextcliff profile STUDY` measures a "
                f"study of that name{missing if broken else ''}"
            )
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            args = ["profile", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        profile = self.get_command(ctx, "profile") if incomplete.startswith("-") else None
        if profile is not None:
            # Like parsing: options without a command belong to `profile`.
            inner = click.Context(profile, parent=ctx, info_name="profile", resilient_parsing=True)
            values = {item.value for item in items}
            options = profile.shell_complete(inner, incomplete)
            items += [item for item in options if item.value not in values]
        return items


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"contextcliff {version('contextcliff-dagster')}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Begin with:
  contextcliff profile quick              two tiny trained models, in seconds
  contextcliff --data FILE --model NAME   your questions, your model; options
                                          without a command are `profile`'s
  contextcliff COMMAND -h                 the options of a command""",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version)
def app() -> None:
    """Find the context length at which a language model stops being reliable on your task."""


def run(args: Sequence[str]) -> int:
    """Run the command line ``args`` (without the program's name); return the exit code."""
    debug = "--debug" in args or bool(os.environ.get("CONTEXTCLIFF_DEBUG"))
    if not args:
        args = ["--help"]
    with ended_by_signals() as first:
        code = guarded(
            lambda: app.main(args=args, prog_name="contextcliff", standalone_mode=False),
            debug=debug,
            resume=shlex.join(["contextcliff", *shown_arguments(args)]),
        )
        return 128 + first() if code == INTERRUPTED else code
