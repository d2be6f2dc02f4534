"""A static site over many studies: caps of every model and task, each leading to its report."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.sections import (
    Bracketed,
    Bullets,
    Cell,
    Code,
    DataTable,
    Fold,
    Link,
    Paragraph,
    Section,
    Text,
)
from contextcliff_dagster.reporting.wording.number_format import (
    count,
    estimate,
    level,
    located,
    tokens,
)
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    false_alarms,
    score_name,
    sentence,
)
from contextcliff_dagster.store import write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs

MARK = "gallery.json"
"""Written last: a folder with it is a gallery, and may be made again."""
_TITLE = "Safe context caps by model and task"
_WORDS = (
    "A safe cap is the largest document up to which the score is, with the stated confidence, "
    "within the stated tolerance of the score on short documents. It holds for its task and "
    "serving configuration, and moves with the number of examples: this is no ranking, and caps "
    "of different tasks or tokenizers are not comparable."
)


class Entry(NamedTuple):
    """One model of an archived study. ``page``: its report without suffix, relative to the site.

    ``archive``, ``sha256``: name and hash of the exported file.
    """

    archive: str
    sha256: str
    page: str
    result: Cliffs


def write_gallery(entries: Sequence[Entry], folder: Path) -> Path:
    """Write index.html, index.md and gallery.json over ``entries``; their reports are there.

    Raises:
        StoreError: the folder cannot be written.
    """
    from contextcliff_dagster.reporting.html.page import Interactive, html_page
    from contextcliff_dagster.reporting.markdown.render import as_page

    ordered = sorted(entries, key=lambda one: (*_place(one.result), one.archive, one.page))
    fold = Fold("Provenance", [Section("Where these results come from", _sources(ordered), 3)])
    words = [_WORDS, false_alarms([entry.result for entry in ordered])]
    head = "".join(f"<p>{text(line)}</p>\n" for line in words if line)
    filters = Interactive(None, ("gallery.js",), "gallery.css")
    site = html_page(_TITLE, head + _table(ordered), [fold], filters)
    top = Section(_TITLE, [*map(Paragraph, filter(None, words)), _rows(ordered)], 1)
    write_atomic(folder / "index.html", site.encode())
    write_atomic(
        folder / "index.md", as_page([top, Section(fold.question), *fold.sections]).encode()
    )
    machine = json.dumps({"results": [*map(_machine, ordered)]}, indent=1, ensure_ascii=False)
    write_atomic(folder / MARK, f"{machine}\n".encode())
    return folder / "index.html"


def _place(result: Cliffs) -> tuple[str, str]:
    return result.model or "unnamed model", result.task or "several tasks"


def _measurement(result: Cliffs) -> tuple[str | None, ...]:
    return result.model, result.task, result.study, result.campaign


def _facts(result: Cliffs) -> list[str]:
    """What a cap must never be without: verdict, intervals, n, and what it is a cap of."""
    base, cliff = result.baseline, result.cliff
    mean = estimate(base.mean, base.ci_low, base.ci_high)
    facts = [VERDICT_PHRASE[result.verdict]]
    if result.safe_cap_tokens is None:
        facts.append(sentence(result.safe_cap_reason).rstrip("."))
    if cliff is not None:
        place = located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        facts.append(f"midpoint of the drop {place} tokens")
    facts.append(f"baseline {score_name(result)} {mean}")
    facts.append(count(result.n, "example"))
    facts.append(f"within {level(result.tolerance)} at {level(result.confidence)} confidence")
    facts.append(f"tokenizer {result.tokenizer or 'unknown'}")
    return facts


def _cap(result: Cliffs) -> str:
    cap = result.safe_cap_tokens
    return "no safe cap" if cap is None else f"{tokens(cap)} tokens"


def _table(entries: Sequence[Entry]) -> str:
    """Models down, tasks across; each entry carries what the filters ask for."""
    models, tasks = (
        list(dict.fromkeys(sorted(_place(e.result)[i] for e in entries))) for i in (0, 1)
    )
    cells: dict[tuple[str, str], list[str]] = {}
    times = Counter(_measurement(entry.result) for entry in entries)
    for entry in entries:
        result, place = entry.result, _place(entry.result)
        verdict = VERDICT_PHRASE[result.verdict]
        named = zip(("model", "task", "verdict"), (*place, verdict), strict=True)
        data = " ".join(f'data-{key}="{text(value)}"' for key, value in named)
        facts = "".join(f"<span>{text(fact)}</span>" for fact in _facts(result))
        from_ = f"study {result.study}, {result.campaign}"
        if times[_measurement(result)] > 1:  # two states of one campaign
            from_ += f", in {entry.archive}"
        cells.setdefault(place, []).append(
            f'<div class="entry" {data}><a href="{text(entry.page)}.html">{text(_cap(result))}</a>'
            f"{facts}<span>{text(from_)}</span></div>"
        )
    head = "".join(f'<th scope="col">{text(task)}</th>' for task in tasks)
    rows = "".join(
        f'<tr><th scope="row">{text(model)}</th>'
        + "".join(f"<td>{''.join(cells.get((model, task), ['–']))}</td>" for task in tasks)
        + "</tr>\n"
        for model in models
    )
    verdicts = sorted({VERDICT_PHRASE[entry.result.verdict] for entry in entries})
    picks = "".join(
        pick(name, options)
        for name, options in (("model", models), ("task", tasks), ("verdict", verdicts))
    )
    return (
        f'<div id="filters" hidden>{picks}<p id="count" role="status"></p></div>\n'
        '<div id="caps" class="table" role="region" tabindex="0" aria-label="Caps"><table>'
        f'<thead><tr><th scope="col">model</th>{head}</tr></thead>\n<tbody>{rows}</tbody>'
        "</table></div>\n"
    )


def pick(name: str, options: Sequence[str]) -> str:
    """One filter of a table of entries (`assets/gallery.js`)."""
    every = "".join(f'<option value="{text(one)}">{text(one)}</option>' for one in options)
    return (
        f'<label>{name}<select name="{name}"><option value="">all</option>{every}</select></label>'
    )


def _rows(entries: Sequence[Entry]) -> DataTable:
    rows: list[list[Cell]] = [
        [
            Code(entry.result.model),
            entry.result.task or "several tasks",
            [Link(_cap(entry.result), f"{entry.page}.md")],
            Bracketed("; ".join(_facts(entry.result))),
        ]
        for entry in entries
    ]
    return DataTable(["model", "task", "safe cap", "measured"], rows, right=())


def _sources(entries: Sequence[Entry]) -> list[Any]:
    found = {(e.archive, e.sha256, e.result.study, e.result.campaign) for e in entries}
    items: list[Text] = [
        [
            Code(f"contextcliff import {shlex.quote(archive)}"),
            " and ",
            Code(f"contextcliff report {study} --campaign {campaign}"),
            " make the report again (sha256 ",
            Code(sha256),
            ").",
        ]
        for archive, sha256, study, campaign in sorted(found, key=str)
    ]
    return [Bullets(items)]


def _machine(entry: Entry) -> dict[str, Any]:
    r = entry.result
    return {
        "model": r.model,
        "task": r.task,
        "study": r.study,
        "campaign": r.campaign,
        "verdict": r.verdict.value,
        "safe_cap_tokens": r.safe_cap_tokens,
        "confidence": r.confidence,
        "tolerance": r.tolerance,
        "n": r.n,
        "tokenizer": r.tokenizer,
        "report": f"{entry.page}.html",
        "archive": entry.archive,
        "sha256": entry.sha256,
    }
