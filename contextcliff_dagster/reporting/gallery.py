"""Static site over many studies: a cap for every model and task, linked to its report."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.reporting import caps_site, wording
from contextcliff_dagster.reporting.sections import Bullets, Code, Fold, Section, Text

MARK = "gallery.json"
_WORDS = (
    "A safe cap is the largest document up to which the score is, with the stated confidence, "
    "within the stated tolerance of the score on short documents. It holds for its task and "
    "serving configuration, and moves with the number of examples: this is not a ranking, and caps "
    "of different tasks or tokenizers are not comparable."
)


class Entry(NamedTuple):
    """One model of an archived study. ``page``: path of its report in the site, without suffix.

    ``archive``, ``sha256``: name and hash of the exported file.
    """

    archive: str
    sha256: str
    page: str
    result: Cliffs


def write_gallery(entries: Sequence[Entry], folder: Path) -> Path:
    """Write index.html, index.md and gallery.json for ``entries``; return the path of index.html.

    Raises:
        StoreError: the folder cannot be written.
    """
    sources = Section("Where these results come from", _sources(entries), 3)
    words = [_WORDS, wording.false_alarms([entry.result for entry in entries])]
    times = Counter(_measurement(entry.result) for entry in entries)
    return caps_site.CapsSite(
        "Safe context caps by model and task",
        MARK,
        [*filter(None, words)],
        [_shown(entry, twice=times[_measurement(entry.result)] > 1) for entry in entries],
        [Fold("Provenance", [sources])],
        {"results": [*map(_machine_entry, entries)]},
    ).write(folder)


def _place(result: Cliffs) -> tuple[str, str]:
    return result.model or "unnamed model", result.task or "several tasks"


def _measurement(result: Cliffs) -> tuple[str | None, ...]:
    return result.model, result.task, result.study, result.campaign


def _shown(entry: Entry, *, twice: bool) -> caps_site.Entry:
    """Return the table entry, naming the archive if ``twice`` (two have this campaign)."""
    result = entry.result
    cap = result.safe_cap_tokens
    picks = dict(zip(caps_site.PLACE, _place(result), strict=True))
    return caps_site.Entry(
        entry.page,
        "no safe cap" if cap is None else f"{wording.tokens(cap)} tokens",
        {**picks, "verdict": wording.VERDICT_PHRASE[result.verdict]},
        _facts(result),
        f"study {result.study}, {result.campaign}" + (f", in {entry.archive}" if twice else ""),
        useless=wording.is_useless(result),
    )


def _facts(result: Cliffs) -> list[str]:
    """Return the facts shown with a cap: verdict, reason or midpoint, baseline, n, tokenizer."""
    base, cliff = result.baseline, result.cliff
    mean = wording.estimate(base.mean, base.ci_low, base.ci_high)
    facts = [*filter(None, [wording.usefulness(result)]), wording.VERDICT_PHRASE[result.verdict]]
    if result.safe_cap_tokens is None:
        facts.append(wording.sentence(result.safe_cap_reason).rstrip("."))
    if cliff is not None:
        place = wording.located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        facts.append(f"midpoint of the drop {place} tokens")
    facts.append(f"baseline {wording.score_name(result)} {mean}")
    facts.append(wording.count(result.n, "example"))
    facts.append(
        f"within {wording.level(result.tolerance)} at {wording.level(result.confidence)} confidence"
    )
    facts.append(f"tokenizer {result.tokenizer or 'unknown'}")
    return facts


def _sources(entries: Sequence[Entry]) -> list[Any]:
    sources = {(e.archive, e.sha256, e.result.study, e.result.campaign) for e in entries}
    items: list[Text] = [
        [
            Code(f"contextcliff import {shlex.quote(archive)}"),
            " and ",
            Code(f"contextcliff report {study} --campaign {campaign}"),
            " rebuild the report (sha256 ",
            Code(sha256),
            ").",
        ]
        for archive, sha256, study, campaign in sorted(sources, key=str)
    ]
    return [Bullets(items)]


def _machine_entry(entry: Entry) -> dict[str, Any]:
    names = (
        *("model", "task", "study", "campaign", "verdict", "safe_cap_tokens", "cap_score"),
        *("min_score", "confidence", "tolerance", "n", "tokenizer"),
    )
    return {
        **{name: to_json(getattr(entry.result, name)) for name in names},
        "report": f"{entry.page}.html",
        "archive": entry.archive,
        "sha256": entry.sha256,
    }
