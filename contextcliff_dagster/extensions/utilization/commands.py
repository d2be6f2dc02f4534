"""`utilization`: the same records as JSON lines and as prose, from short to long."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import dagster_log, money, print_either
from contextcliff_dagster.cli.display.samples import estimate_sentence
from contextcliff_dagster.cli.errors import say
from contextcliff_dagster.cli.measuring.made_study import (
    RunOptions,
    check_budget,
    measure_made_study,
)
from contextcliff_dagster.cli.measuring.options import SectionOptions, digest
from contextcliff_dagster.cli.options import common_options, spending_options, with_answers_option
from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.extensions.utilization.section import UtilizationSection
from contextcliff_dagster.store import Store

if TYPE_CHECKING:
    from contextcliff_dagster.run.study import Prepared
    from contextcliff_dagster.studies import Study


_OUTPUT_TOKENS = 64
UTILIZATION_OPTIONS = SectionOptions(
    "utilization",
    UtilizationSection,
    "contextcliff utilization",
    keys=(
        *("benchmarks", "scales", "formats", "seeds", "questions", "evidence", "match", "order"),
        *("verbosity", "corruption", "thought", "question_place", "margin", "tokenizer"),
        "factorial",
    ),
    names={"benchmarks": "--benchmark", "scales": "--scale"},
    help={
        "corruption": "Share of changed records, e.g. 0,5%; 5%:recomputed recomputes the answers.",
    },
)


def made_study(keys: Mapping[str, Any], models: tuple[str, ...]) -> Study:
    """Return the study that the options describe, named after them; raise StudyError."""
    from contextcliff_dagster.inference.models.models_file import get_model

    if not models:
        raise StudyError(
            "`contextcliff utilization` needs --model NAME, the model to measure; "
            "`contextcliff models` lists the names."
        )
    entries = [get_model(name) for name in models]
    tokenizer = keys.get("tokenizer") or entries[0].tokenizer or ""
    study = UTILIZATION_OPTIONS.study(
        {key: value for key, value in keys.items() if key != "tokenizer"},
        description="Utilization: the same records in several formats.",
        tokenizer=tokenizer,
        models=list(dict.fromkeys(models)),
        prompt={"max_output_tokens": _OUTPUT_TOKENS},
    )
    section = study.sections["utilization"]
    name_hash = digest([section.model_dump(mode="json"), tokenizer])
    benchmarks = "-".join(section.benchmarks) if len(section.benchmarks) < 3 else "all"
    scales = section.scales[0].replace(".", "-")
    if len(section.scales) > 1:
        scales += f"-to-{section.scales[-1].replace('.', '-')}"
    return study.changed(name=f"utilization-{benchmarks}-{scales}-{name_hash}".lower())


@click.group(invoke_without_command=True)
@UTILIZATION_OPTIONS.decorator
@spending_options
@with_answers_option
@common_options
@click.pass_context
def utilization(ctx: click.Context, /, **options: Any) -> None:
    """Measure whether structure lets a model use more of its context, and print the report.

    Generates documents of a given number of tokens, verifies them and writes them in several
    formats. If an option has several values, such as --order chronological,shuffled, the first is
    the base; each further value is measured alone against it.

    \b
    Examples:
      contextcliff utilization --benchmark ledger --scale 8k --formats jsonl,prose --model my-model
      contextcliff utilization --scale 1k-64k --seeds 20 --model my-model --dry-run
          Show the cost of all benchmarks at seven lengths, without a call.
      contextcliff utilization --scale 1k,4k export made
          Write the documents, questions and answers of these options into the folder `made`.
    """
    if ctx.invoked_subcommand is None:
        _measure(**options)
    ctx.obj = options


@utilization.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--study", metavar="STUDY", help="Export this study; ignore earlier options.")
@common_options
@click.pass_obj
def export(options: Mapping[str, Any], folder: Path, study: str | None, as_json: bool) -> None:
    """Write documents, questions, answers and the verifier's verdicts as JSON lines into DIR.

    DIR also receives an inspect_ai task for any model: `inspect eval DIR/inspect_task.py`. The
    options before `export` choose the documents. This command needs no model and calls none.
    """
    from contextcliff_dagster.extensions.utilization.documents import whole_documents
    from contextcliff_dagster.extensions.utilization.export import export as write
    from contextcliff_dagster.studies import find_study

    models = options["models"] or _NO_MODEL
    source = find_study(study) if study else made_study(options["keys"], models)
    section = source.sections.get("utilization")
    if section is None:
        raise StudyError(f"Study {source.name!r} has no key `utilization`; choose one that has it.")
    _say_left_out(source)
    with dagster_log(options["verbose"]):
        exported = write(
            whole_documents(source, Store.default()),
            folder,
            thought=section.thought[0],
            question_place=section.question_place[0],
        )
    text = (
        f"{exported.documents:,} documents with {exported.questions:,} questions: {folder}\n"
        f"Ask a model: inspect eval {folder / 'inspect_task.py'} --model NAME"
    )
    counts = {"documents": exported.documents, "questions": exported.questions}
    print_either({"folder": str(folder), **counts}, text, as_json=as_json)


_NO_MODEL = ("reader-perfect",)
"""Model whose tokenizer counts if --model is missing."""


def _measure(keys: Mapping[str, Any], models: tuple[str, ...], **options: Any) -> None:
    run_options = RunOptions(**options)
    check_budget()
    study = made_study(keys, models)
    _say_left_out(study)
    asks = bool(keys.get("factorial")) and not run_options.yes
    measure_made_study(study, run_options, _agree_on_factorial if asks else None)


def _say_left_out(study: Study) -> None:
    from contextcliff_dagster.extensions.utilization.documents import left_out
    from contextcliff_dagster.extensions.utilization.verification import unproved_sentence

    if left_out(study, Store.default()):
        say(f"Note: {unproved_sentence('is left out')}")


def _agree_on_factorial(prepared: Prepared) -> None:
    """Show the cost of all combinations; raise BudgetError unless the user agrees to it."""
    from contextcliff_dagster.extensions.utilization.prompts import arms_of
    from contextcliff_dagster.run.study import prepare_study

    section = prepared.study.sections["utilization"]
    base = prepare_study(
        prepared.study.changed(utilization=section.model_copy(update={"factorial": False})),
        keep=False,
        store=Store.default(),
    ).estimate
    alternative = f"One change at a time: {base.calls:,} calls, about {base.tokens:,} tokens"
    alternative += f", about {money(base.usd)}." if base.usd else "."
    cost = (
        f"--factorial measures all {len(arms_of(section)):,} combinations. "
        f"{estimate_sentence(prepared)} {alternative}"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BudgetError(f"{cost} Add --yes to confirm, or omit --factorial.")
    if not click.confirm(f"{cost} Measure every combination?", err=True):
        raise BudgetError("Not confirmed, so nothing was sent; omit --factorial to send less.")
