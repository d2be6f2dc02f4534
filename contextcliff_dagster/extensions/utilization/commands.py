"""`utilization`: the same records as JSON lines and as prose, from short to long."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import dagster_log, money, print_either
from contextcliff_dagster.cli.display.samples import estimate_sentence
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
        "corruption": "Share of changed records, e.g. 0,5%; 5%:recomputed works the answers out "
        "again.",
    },
)


def made_study(keys: Mapping[str, Any], models: tuple[str, ...]) -> Study:
    """Return the study that the options describe; its name depends on them.

    Raises:
        StudyError: no model is named, a model is unknown, or an option has no such value.
    """
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    if not models:
        raise StudyError(
            "`contextcliff utilization` needs --model: name the model to measure "
            "(`contextcliff models`)."
        )
    known = load_models()
    entries = [get_model(name, known) for name in models]
    tokenizer = keys.get("tokenizer") or entries[0].tokenizer or ""
    made = UTILIZATION_OPTIONS.study(
        {key: value for key, value in keys.items() if key != "tokenizer"},
        description="Utilization: the same records in several formats.",
        tokenizer=tokenizer,
        models=list(dict.fromkeys(models)),
        prompt={"max_output_tokens": _OUTPUT_TOKENS},
    )
    checked = made.sections["utilization"]
    decides = digest([checked.model_dump(mode="json"), tokenizer])
    some = "-".join(checked.benchmarks) if len(checked.benchmarks) < 3 else "all"
    scales = checked.scales[0].replace(".", "-")
    if len(checked.scales) > 1:
        scales += f"-to-{checked.scales[-1].replace('.', '-')}"
    return made.changed(name=f"utilization-{some}-{scales}-{decides}".lower())


@click.group(invoke_without_command=True)
@UTILIZATION_OPTIONS.decorator
@spending_options
@with_answers_option
@common_options
@click.pass_context
def utilization(ctx: click.Context, /, **given: Any) -> None:
    """Does structure let a model use more of its context? Measure and print the report.

    Documents are made here to a number of tokens, verified, and written in several formats. An
    option with several values, as --order chronological,shuffled, measures the first with
    everything else, and each further one on its own against it.

    \b
    Examples:
      contextcliff utilization --benchmark ledger --scale 8k --formats jsonl,prose --model my-model
      contextcliff utilization --scale 1k-64k --seeds 20 --model my-model --dry-run
          All benchmarks at seven lengths: what it would cost, no call.
      contextcliff utilization --scale 1k,4k export made
          The documents, questions and answers of these options into the folder `made`.
    """
    if ctx.invoked_subcommand is None:
        _measure(**given)
    ctx.obj = given


@utilization.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--study", metavar="STUDY", help="Of this study, not of the options before `export`.")
@common_options
@click.pass_obj
def export(given: Mapping[str, Any], folder: Path, study: str | None, as_json: bool) -> None:
    """Write documents, questions, answers and the verifier's verdicts as JSON lines into DIR.

    An inspect_ai task next to them asks any model: `inspect eval DIR/inspect_task.py`. The options
    before `export` choose the documents; no model is needed, and none is called.
    """
    from contextcliff_dagster.extensions.utilization.documents import whole_documents
    from contextcliff_dagster.extensions.utilization.export import export as write
    from contextcliff_dagster.studies import find_study

    store = Store.default()
    chosen = find_study(study) if study else made_study(given["keys"], given["models"] or _NO_MODEL)
    section = chosen.sections.get("utilization")
    if section is None:
        raise StudyError(f"Study {chosen.name!r} has no key `utilization`; name one that has.")
    with dagster_log(given["verbose"]):
        done = write(
            whole_documents(chosen, store),
            folder,
            thought=section.thought[0],
            question_place=section.question_place[0],
        )
    text = (
        f"{done.documents:,} documents with {done.questions:,} questions: {folder}\n"
        f"Ask a model: inspect eval {folder / 'inspect_task.py'} --model NAME"
    )
    counts = {"documents": done.documents, "questions": done.questions}
    print_either({"folder": str(folder), **counts}, text, as_json=as_json)


_NO_MODEL = ("reader-perfect",)
"""Its tokenizer counts where no model is named."""


def _measure(keys: Mapping[str, Any], models: tuple[str, ...], **given: Any) -> None:
    options = RunOptions(**given)
    check_budget()
    study = made_study(keys, models)
    asks = bool(keys.get("factorial")) and not options.yes
    measure_made_study(study, options, _agree_on_factorial if asks else None)


def _agree_on_factorial(prepared: Prepared) -> None:
    """Say what every combination takes, before a document is made, and ask.

    Raises:
        BudgetError: not confirmed, or there is no terminal to confirm it.
    """
    from contextcliff_dagster.extensions.utilization.prompts import arms_of
    from contextcliff_dagster.run.study import prepare_study

    section = prepared.study.sections["utilization"]
    alone = prepare_study(
        prepared.study.changed(utilization=section.model_copy(update={"factorial": False})),
        keep=False,
        store=Store.default(),
    ).estimate
    saved = f"One change at a time: {alone.calls:,} calls, about {alone.tokens:,} tokens"
    saved += f", about {money(alone.usd)}." if alone.usd else "."
    what = (
        f"--factorial asks for all {len(arms_of(section)):,} combinations. "
        f"{estimate_sentence(prepared)} {saved}"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BudgetError(f"{what} Add --yes for that, or leave --factorial out.")
    if not click.confirm(f"{what} Measure every combination?", err=True):
        raise BudgetError("Not confirmed, so nothing was sent; leave --factorial out.")
