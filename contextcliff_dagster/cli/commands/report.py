"""`report`, and printing the results of measured studies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.dagster_home import COMMAND_LINE, open_instance
from contextcliff_dagster.cli.display.output import dagster_log, duration, money, print_json
from contextcliff_dagster.cli.measuring.options import judging_options
from contextcliff_dagster.cli.options import (
    StudyOptions,
    common_options,
    only_models_option,
    study_options,
    verbose_option,
    with_answers_option,
)
from contextcliff_dagster.cli.result_cache import find_finished, note_finished
from contextcliff_dagster.cli.study_selection import as_asked, choose_study, not_measured
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.reporting.wording import count, instability_sentence
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.inference.telemetry import RunSummary
    from contextcliff_dagster.run.study import Profiled


_WORDS = 160
"""Maximum length of a quoted server message, in characters."""


@click.command()
@study_options
@only_models_option
@click.option("--campaign", metavar="NAME", help="Campaign to report (default: the newest).")
@judging_options
@with_answers_option
@verbose_option
@common_options
def report(
    options: StudyOptions, campaign: str | None, with_answers: bool, verbose: bool, as_json: bool
) -> None:
    """Print the report of STUDY, and first rebuild it unless it is current; makes no call."""
    store = Store.default()
    chosen = choose_study(options)
    if store.root.is_dir() and not os.access(store.root, os.W_OK):
        _print_existing(store, chosen, campaign, as_json=as_json)
        return
    if not store.has_ledger:
        raise not_measured(chosen.name, store, "measurement")
    asked = as_asked(chosen, options)
    with dagster_log(verbose):
        done = find_finished(store, asked, campaign, with_answers, complete=False)
        if done is None:
            from contextcliff_dagster.run.study import rebuild_report

            done = rebuild_report(
                asked,
                campaign=campaign,
                store=store,
                instance=open_instance(store),
                cause=COMMAND_LINE,
                with_answers=with_answers,
            )
            note_finished(store, asked, done.campaign, {}, with_answers)
    print_profiled(done, as_json=as_json)


def _print_existing(store: Store, study: Study, campaign: str | None, *, as_json: bool) -> None:
    """Print the existing report from a read-only store."""
    folder = store.study_dir(study.name)
    profiled, others = (
        {path.name for path in (folder / kind).glob("*")} for kind in ("profiles", "results")
    )
    campaigns = [*sorted(others - profiled), *sorted(profiled)]
    if not campaigns:
        raise not_measured(study.name, store, "measurement")
    name = campaign or campaigns[-1]
    if name not in campaigns:
        raise StudyError(
            f"Study {study.name!r} has no campaign {name!r} in {store.root}; "
            f"it has {', '.join(campaigns)}."
        )
    from contextcliff_dagster.run.study import read_profiled

    print_profiled(read_profiled(study, store, name, {}), as_json=as_json)


def profiled_json(done: Profiled) -> dict[str, Any]:
    """Return the results, what was sent and the paths of the files, JSON-ready."""
    from contextcliff_dagster.reporting.markdown import as_json

    files = done.report._asdict().items()
    return {
        "study": done.study.name,
        "campaign": done.campaign,
        "calls": {model: summary.to_dict() for model, summary in done.calls.items()},
        "cliffs": to_json(done.cliffs),
        "report": {kind: str(file) for kind, file in files if file is not None},
        "notes": list(done.notes),
        "sections": as_json(done.sections),
    }


def print_profiled(done: Profiled, *, as_json: bool, more: Mapping[str, Any] | None = None) -> None:
    """Print every model's report, their comparison, the cost and the paths of the files.

    ``more``: further keys of the JSON object.
    """
    if as_json:
        print_json({**profiled_json(done), **(more or {})})
        return
    from contextcliff_dagster.reporting.markdown import as_text
    from contextcliff_dagster.reporting.terminal import comparison_line, control_lines, risk_report

    if first := [section for section in done.sections if section.first]:
        click.echo("\n".join(as_text(first)) + "\n")
    for result in done.cliffs:
        click.echo(risk_report(result))
        if warned := len(result.warnings):
            click.echo(f"{warned} warning{'s' * (warned > 1)}: see the report.")
        if wordings := instability_sentence(result):
            click.echo(wordings)
        if controls := control_lines(result):
            click.echo("\n".join(["", *controls]))
        click.echo()
    if line := comparison_line(done.cliffs):
        click.echo(f"{line}\n")
    if others := [section for section in done.sections if not section.first]:
        click.echo("\n".join(as_text(others)) + "\n")
    for note in done.notes:
        click.echo(f"{note}\n")
    for line in spent_lines(done.calls, done.study.name, done.unchecked):
        click.echo(line)
    if any((b.mean or 0.0) < 1.0 for result in done.cliffs for b in result.bins if b.n):
        click.echo(f"Wrong:   contextcliff answers {done.study.name} --wrong")
    report = done.report
    click.echo(f"Report:  {report.html if report.html.exists() else report.md}")
    if report.png is not None:
        click.echo(f"Picture: {report.png}")
    if done.study.track is not None:
        from contextcliff_dagster.experiments.tracking.tracker import tracked_lines

        for line in tracked_lines(Store.default(), done.study, done.campaign):
            click.echo(line)


def spent_lines(
    calls: Mapping[str, RunSummary], study: str, unchecked: int | None = None
) -> list[str]:
    """Return lines about what this run measured, and about calls without an answer.

    ``unchecked``: as in `Profiled`; None counts this run's calls.
    """
    if not calls:
        return []

    summaries = list(calls.values())

    def total(name: str) -> Any:
        return sum(getattr(summary, name) for summary in summaries)

    sent, answered = total("sent"), total("answered")
    if not sent and not answered and not total("transport_errors"):
        lines = [f"Nothing new to measure: all {total('planned'):,} calls are in the ledger."]
    else:
        parts = [
            f"{count(sent, 'call')} sent" if sent else f"{count(answered, 'answer')} taken in",
            f"{total('cached') + total('by_others'):,} known before",
            f"{total('prompt_tokens') + total('completion_tokens'):,} tokens",
        ]
        if reasoning := total("reasoning_tokens"):
            parts[-1] += f" ({reasoning:,} of them reasoning)"
        if usd := total("cost_usd"):
            parts.append(money(usd))
        lines = [f"Measured: {', '.join(parts)}, {duration(total('seconds'))}."]
    if empty := total("reasoned_out"):
        lines.append(
            f"{count(empty, 'answer')} came back empty, because reasoning used up the output "
            f"limit; raise `prompt: max_output_tokens` of study {study!r}."
        )
    if unchecked := total("unchecked_truncation") if unchecked is None else unchecked:
        whose = [model for model, run in calls.items() if run.unchecked_truncation] or calls
        lines.append(
            f"Silent truncation not checked for {count(unchecked, 'answer')}: set `tokenizer` in "
            f"models.yaml for {', '.join(whose)}, whose servers must report usage."
        )
    if unbelieved := total("usage_too_large"):
        lines.append(
            f"{count(unbelieved, 'answer')} reported an impossible token usage (more than ten "
            "times our own count) and cost the reserved amount; check how the server counts."
        )
    if overlong := total("overlong"):
        lines.append(
            f"{count(overlong, 'answer')} had to be cut, because the server went far beyond the "
            "output limit; the kept part is scored."
        )
    if failed := total("transport_errors"):
        words = next((summary.words for summary in reversed(summaries) if summary.words), "")
        why = f" ({shorten(words, _WORDS)})" if words else ""
        way = " --batch" if any(summary.batched for summary in summaries) else ""
        lines.append(
            f"{count(failed, 'call')} got no answer{why}; "
            f"`contextcliff profile {study}{way}` tries again."
        )
    for name, noun, why in (
        ("maybe_paid", "request", "died after being sent."),
        ("orphans", "call", "in flight when an earlier run ended, sent again."),
    ):
        if number := total(name):
            charge = f" ({money(usd)})" if (usd := total(f"{name}_usd")) else ""
            lines.append(
                f"Perhaps paid, and charged to the budget{charge}: {count(number, noun)} {why}"
            )
    return lines
