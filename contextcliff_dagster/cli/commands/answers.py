"""`answers`: the evidence behind a result, answer by answer.

JSON lines and CSV, for other programs, hold complete answers exactly as recorded.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.answer_selection import ChosenAnswers, Wanted, answered_campaign
from contextcliff_dagster.cli.display.output import AnswerTable, Survey, print_json, visible
from contextcliff_dagster.cli.display.samples import (
    as_lines,
    as_object,
    temperature_words,
    without_temperature,
)
from contextcliff_dagster.cli.options import StudyOptions, common_options, gathered_as, together
from contextcliff_dagster.cli.study_selection import choose_study
from contextcliff_dagster.contracts import ANSWERS, FailureTag, StudyError
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.sampling.draw_manifest import CONTROLS
from contextcliff_dagster.store import atomic_path

if TYPE_CHECKING:
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall

_FORMATS = ("table", "jsonl", "csv")
_WIDTH = 120
"""Width in characters of a table written to a file or a pipe."""


_CHOICE = together(
    click.option("--wrong", is_flag=True, help="List only wrong answers."),
    click.option("--right", is_flag=True, help="List only right answers."),
    click.option(
        "--failure",
        "failures",
        multiple=True,
        type=click.Choice([tag.value for tag in FailureTag]),
        metavar="TAG",
        help="List only answers with this failure tag, e.g. hallucination; repeatable.",
    ),
    click.option(
        "--bin", "bins", multiple=True, metavar="BIN", help="Only this length bin; repeatable."
    ),
    click.option(
        "--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable."
    ),
    click.option(
        "--control",
        type=click.Choice(CONTROLS),
        metavar="NAME",
        help="List the answers of a control (no_context, oracle) instead.",
    ),
    click.option(
        "--limit", type=click.IntRange(1, 1_000_000_000), metavar="N", help="List only the first N."
    ),
)


@click.command()
@click.argument("study")
@gathered_as("wanted", Wanted, _CHOICE)
@click.option("--campaign", metavar="NAME", help="Campaign to list (default: the newest answered).")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="Output format (default: by the suffix of --output, else a table).",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE.")
@click.option(
    "--show",
    "shown",
    metavar="ID",
    help="Show one question: its prompt, replies, accepted answers, scores and evidence. ID is in "
    "the table; its beginning is enough.",
)
@click.option("--whole", is_flag=True, help="With --show, do not shorten the document.")
@common_options
def answers(
    study: str,
    wanted: Wanted,
    campaign: str | None,
    form: str | None,
    output: Path | None,
    shown: str | None,
    whole: bool,
    as_json: bool,
) -> None:
    """List the answers of STUDY: question, accepted answers, reply, score, failure tag, document,
    its length, and the position of the evidence in it (AT).

    Answers are sorted by bin, then length; no call is made. JSONL and CSV hold the full texts.
    """
    if wanted.wrong + wanted.right + bool(wanted.failures) > 1:
        raise StudyError("--wrong, --right and --failure exclude each other; choose one of them.")
    if as_json and form is not None and output is None:
        raise StudyError(
            "--json prints one JSON object, so --format does not apply; use only one of them."
        )
    if whole and shown is None:
        raise StudyError("--whole needs --show ID; add it, or leave out --whole.")
    if shown is not None and (form is not None or output is not None):
        raise StudyError("--show prints to the terminal; leave out --format and --output.")
    chosen = choose_study(StudyOptions(study))
    with answered_campaign(chosen, campaign) as run:
        selected = ChosenAnswers(run, wanted)
        where = {"study": run.study.name, "campaign": run.campaign}
        if shown is not None:
            rows = _rows_of(selected, shown, run.study.name)
            calls = selected.calls(rows[0]["example_id"])
            omitting = without_temperature(run.study)
            if as_json:
                prompts = [as_object(call, omitting) for call in calls]
                print_json({**where, "answers": rows, "prompts": prompts})
                return
            _print_all(_shown(rows, calls))
            for call in calls:
                temperature = temperature_words(call, run.study.models, omitting)
                _print_all(["", *as_lines(call, temperature, whole=whole)])
        elif output is not None:
            _write(selected, output, form, where, as_json=as_json)
        elif as_json:
            rows = list(selected.rows())
            print_json({**where, **_counts(selected.survey()), "answers": rows})
        else:
            _print(selected, form or "table", where)


def _counts(survey: Survey) -> dict[str, int]:
    names = ("right", "wrong", "not_scored", "shown")
    return {name: getattr(survey, name) for name in names}


def _rows_of(found: ChosenAnswers, beginning: str, study: str) -> list[dict[str, Any]]:
    """Return the answers to the question whose id has this beginning.

    Raises:
        StudyError: there is none, or there are several questions.
    """
    rows = [row for row in found.rows() if row["example_id"].startswith(beginning)]
    ids = {row["example_id"] for row in rows}
    if len(ids) == 1:
        return rows
    why = f"{len(ids):,} questions have" if ids else "No chosen answer has"
    raise StudyError(
        f"{why} an id that begins with {beginning!r}; the column ID of `contextcliff answers "
        f"{study}` lists them, and --format jsonl has them whole."
    )


def _shown(rows: Sequence[Mapping[str, Any]], calls: Sequence[PlannedCall]) -> Iterator[str]:
    """Yield the lines that show one question: document, accepted answers, evidence and replies."""
    first = rows[0]
    accepted = first["accepted"] or ["no longer in the sample"]
    name, size = first["document"] or first["document_id"], count(first["length_tokens"], "token")
    yield f"Document: {visible(name)}, {size}, bin {first['bin']}"
    yield f"Question: {visible(first['question'] or 'no longer in the sample')}"
    yield f"Accepted: {visible(', or '.join(accepted))}"
    if (at := first["evidence_position"]) is None:
        yield "Evidence: not located"
    else:
        yield f"Evidence: at {at:.0%} of the document"
        if calls:
            text, place = calls[0].document, round(at * len(calls[0].document))
            around = " ".join(text[max(place - 80, 0) : place + 160].split())
            yield f"          ... {visible(around)} ..."
    for row in rows:
        score = "not scored" if row["score"] is None else f"score {row['score']:.2f}"
        tag = f", {row['failure']}" if row["failure"] else ""
        yield ""
        yield f"Reply of {visible(row['model'])} to wording {row['replicate'] + 1}: {score}{tag}"
        reply = row["answer"] if row["answer"] is not None else f"({row['error'] or 'no answer'})"
        yield from map(visible, reply.split("\n"))
        if row["parsed_answer"] not in (None, reply):
            yield f"Scored text: {visible(row['parsed_answer'])}"


def _print(found: ChosenAnswers, form: str, where: dict[str, str]) -> None:
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    _print_all(_lines(found, form, where, max(width, 60)))


def _print_all(lines: Iterable[str]) -> None:
    if hasattr(sys.stdout, "reconfigure"):  # whatever the locale: the texts are in any language
        sys.stdout.reconfigure(encoding="utf-8")
    for line in lines:
        click.echo(line)


def _write(
    found: ChosenAnswers, file: Path, form: str | None, where: dict[str, str], *, as_json: bool
) -> None:
    """Write the answers to ``file``; raise StoreError if that fails."""
    form = form or next((suffix for suffix in _FORMATS if file.suffix == f".{suffix}"), "table")
    end = "\r\n" if form == "csv" else "\n"
    with atomic_path(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as out:
        for line in _lines(found, form, where, _WIDTH):
            out.write(line + end)
    survey = found.survey()
    if as_json:
        print_json({**where, "file": str(file), "format": form, **_counts(survey)})
    else:
        click.echo(f"{file} holds {count(survey.shown, 'answer')} as {form}.")


def _lines(found: ChosenAnswers, form: str, where: dict[str, str], width: int) -> Iterator[str]:
    if form == "table":
        yield from _table(found, where, width)
        return
    rows = ({**where, **row} for row in found.rows())
    if form == "jsonl":
        yield from map(as_json_line, rows)
    else:
        yield from csv_lines(rows, [*where, *ANSWERS.column_names])


def _table(found: ChosenAnswers, where: dict[str, str], width: int) -> Iterator[str]:
    survey = found.survey()
    if survey.shown:
        table = AnswerTable(survey, width)
        yield from table.head()
        for row in found.rows():
            yield from table.lines(row)
        yield ""
    model = next(iter(survey.models)) if len(survey.models) == 1 else None
    words = ("right", "wrong") if survey.is_graded else ("scored", "failed")
    parts = [f"{survey.right:,} {words[0]}", f"{survey.wrong:,} {words[1]}"]
    parts += [f"{survey.not_scored:,} not scored"] if survey.not_scored else []
    left = survey.answers - survey.shown
    shown = f"; {survey.shown:,} shown" if left else ""
    of = f", {visible(model)}" if model else ""
    yield (
        f"Study {where['study']}, campaign {where['campaign']}{of}: "
        f"{count(survey.answers, 'answer')}, {', '.join(parts)}{shown}."
    )


_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NUMBER = re.compile(r"[+-]?[\d.,]*\d%?", re.ASCII)
_BEGINS_FORMULA = frozenset("=+-@\t\r\n＝＋－＠")


def as_json_line(row: Mapping[str, Any]) -> str:
    """Return ``row`` as one line of JSON.

    Characters that move a terminal's cursor, or end a line for some readers, are escaped.
    """
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def csv_lines(rows: Iterator[Mapping[str, Any]], names: list[str]) -> Iterator[str]:
    """Yield the header and ``rows`` as lines of CSV (RFC 4180), without line ends.

    Null becomes an empty field, an empty text ``""``, a list JSON. A text that a spreadsheet would
    read as a formula gets a leading apostrophe, and so does one that begins with an apostrophe:
    removing one leading apostrophe from each text restores the original.
    """
    yield ",".join(map(_quoted, names))
    for row in rows:
        yield ",".join(_field(row[name]) for name in names)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return _quoted(json.dumps(value, ensure_ascii=False))
    text = str(value)
    formula = text[:1] in _BEGINS_FORMULA and not _NUMBER.fullmatch(text)
    return _quoted(f"'{text}" if text and (formula or text[0] == "'") else text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
