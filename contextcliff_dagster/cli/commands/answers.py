"""`answers`: the evidence behind a result, answer by answer.

JSON lines and CSV, for other programs, hold complete answers exactly as recorded.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextcliff_dagster.cli.display.output import (
    AnswerTable,
    Survey,
    is_right,
    is_wrong,
    print_json,
    some,
    visible,
)
from contextcliff_dagster.cli.display.samples import (
    as_lines,
    as_object,
    temperature_words,
    without_temperature,
)
from contextcliff_dagster.cli.options import StudyOptions, common_options, gathered_as, together
from contextcliff_dagster.cli.study_selection import choose_study, not_measured
from contextcliff_dagster.contracts import ANSWERS, FailureTag, StudyError
from contextcliff_dagster.reporting.wording import count
from contextcliff_dagster.sampling.draw_manifest import CONTROLS
from contextcliff_dagster.store import Store, atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.experiments.common.experiment import Experiment
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.ledger import Ledger
    from contextcliff_dagster.inference.requests.call_plan import PlannedCall
    from contextcliff_dagster.studies import Study


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that select answers; empty options select all."""

    models: tuple[str, ...]
    bins: tuple[str, ...]
    failures: tuple[str, ...]
    wrong: bool
    right: bool
    control: str | None
    limit: int | None

    def of(self, rows: pa.Table) -> pa.Table:
        """Return the matching answers of the chosen models and bins, before the limit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.wrong:
            return rows.filter(is_wrong(rows))
        if self.right:
            return rows.filter(is_right(rows))
        if self.failures:
            return rows.filter(pc.is_in(rows["failure"], value_set=pa.array(self.failures)))
        return rows


class ChosenAnswers:
    """The selected answers of a campaign, read anew on each call."""

    def __init__(self, run: StudyRun, wanted: Wanted) -> None:
        self._run, self._wanted = run, wanted
        self._experiments = _experiments(run.study, wanted.control)
        self._require_known()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the answers by bin, then length; `ANSWERS` as values."""
        for table in self._tables():
            yield from table.to_pylist()

    def calls(self, example_id: str) -> list[PlannedCall]:
        """Return the calls that asked about an example; empty if the sample lacks it."""
        from contextcliff_dagster.experiments.common.measurement import example_calls
        from contextcliff_dagster.experiments.common.preparation import as_drawn

        with suppress(StudyError):  # the sample is gone
            run = replace(self._run, study=as_drawn(self._run.study, self._run.store))
            return [
                call
                for experiment in self._experiments
                for call in example_calls(run, experiment, example_id)
            ]
        return []

    def survey(self) -> Survey:
        """Return counts of the chosen models and bins, and the widths of the shown columns."""
        survey, left = Survey(), self._wanted.limit
        for table in self._read():
            survey.count(table)
            selected = self._wanted.of(table).slice(0, left)
            survey.measure(selected)
            left = None if left is None else left - selected.num_rows
        return survey

    def _tables(self) -> Iterator[pa.Table]:
        left = self._wanted.limit
        for table in self._read():
            selected = self._wanted.of(table).slice(0, left)
            yield selected
            if left is not None and (left := left - selected.num_rows) <= 0:
                return

    def _read(self) -> Iterator[pa.Table]:
        from contextcliff_dagster.experiments.common.answers import iter_answers

        models, bins, control = self._wanted.models, self._wanted.bins, self._wanted.control
        for experiment in self._experiments:
            for table in iter_answers(self._run, models or None, bins or None, experiment):
                if control is None:
                    yield table
                else:
                    yield table.filter([c == control for c in table["control"].to_pylist()])

    def _require_known(self) -> None:
        """Raise StudyError for a model or bin without answers, listing those with answers."""
        from contextcliff_dagster.experiments.common.answers import answered_cells

        bins_by_model: dict[str, set[str]] = {}
        for experiment in self._experiments:
            for model, cells in answered_cells(self._run, experiment).items():
                bins_by_model.setdefault(model, set()).update(cells)
        of = f"Campaign {self._run.campaign} of study {self._run.study.name!r}"
        if not bins_by_model:
            raise StudyError(f"{of} has no answers of controls; `profile --controls` asks them.")
        bins = sorted(set().union(*bins_by_model.values()))
        for kind, wanted, names in (
            ("of model", self._wanted.models, [*bins_by_model]),
            ("in bin", self._wanted.bins, bins),
        ):
            for name in wanted:
                if name not in names:
                    raise StudyError(f"{of} has no answers {kind} {name!r}; it has {some(names)}.")


def _experiments(study: Study, control: str | None) -> list[Experiment]:
    from contextcliff_dagster.experiments.lookup import partitioned
    from contextcliff_dagster.studies.experiment_table import load_experiment

    if control is not None:
        return [load_experiment("controls")]
    # Experiments that share their tables are read once.
    return [*{e.records.name: e for e in reversed(partitioned(study))}.values()][::-1]


@contextmanager
def answered_campaign(study: Study, campaign: str | None) -> Iterator[StudyRun]:
    """Yield the named campaign, or the newest with answers, preferring one that is not a sentinel.

    Raises:
        StudyError: no campaign, or not the named one, has answers; the message lists those that do.
        StoreError: the ledger cannot be opened.
    """
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.ledger.campaigns import SENTINEL
    from contextcliff_dagster.inference.ledger.ledger import Ledger

    store = Store.default()
    nothing = not_measured(study.name, store, "answers")
    if not store.has_ledger:
        raise nothing
    with Ledger.open_to_read(store.ledger) as ledger:
        names = _answered_campaigns(study, store, ledger)
        if not names:
            raise nothing
        if campaign is not None and campaign not in names:
            raise StudyError(
                f"Study {study.name!r} has no answers in a campaign {campaign!r}; it has "
                f"{some(names)}."
            )
        others = [name for name in names if not name.startswith(SENTINEL)]
        yield StudyRun(study, store, ledger, campaign or (others or names)[-1])


def _answered_campaigns(study: Study, store: Store, ledger: Ledger) -> list[str]:
    """Campaigns with records or predictions in the store, oldest first."""
    from contextcliff_dagster.experiments.lookup import partitioned
    from contextcliff_dagster.inference.ledger.campaigns import list_campaigns

    stored = {
        folder.name.removeprefix("campaign=")
        for experiment in partitioned(study)
        for table in (experiment.records, experiment.predictions)
        for folder in (store.study_dir(study.name) / table.name).glob("campaign=*")
        if next(folder.glob("model=*/bin=*/*.parquet"), None) is not None
    }
    begun = [campaign.name for campaign in list_campaigns(ledger, study.name)]
    return [*sorted(stored - set(begun)), *(name for name in begun if name in stored)]


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
    """Return the answers to the question whose id has this beginning."""
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
