"""What became of every file: one line each for the list, counts and a sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from contextcliff_dagster.corpora.extraction.file_type import UNKNOWN_GLYPHS

_ABOUT_RECALL = (
    "every question is verbatim recall, made from the documents themselves: the cap says how far "
    "the model copies, not how far it reasons"
)
_MOST_NOTES = 20
_FIRST = 3

FATES: dict[str, str] = {
    "unreadable": "not readable",
    "empty": "empty",
    "duplicate": "the same text as another",
    "too_short": "too short",
    "no_question": "without a question",
    "questions": "table|tables of questions",
    "hidden": "hidden",
    "ignored": "ignored",
    "link_out": "link|links out of the folder",
    "link": "link|links to what is read already, or to nothing",
    "not_a_file": "no plain file|files",
}
"""Why a file is left out, in the words of the report; their order is that of the sentence. Of
``one|several`` the first is for a count of 1."""


@dataclass(frozen=True, slots=True)
class Fate:
    """One file and what became of it.

    ``fate``: ``used`` or a key of `FATES`. ``reason``: a clause whose subject is the file, empty
    for files that are used. ``questions``: examples that it gives. ``notes``: what was done to get
    its text.
    """

    file: str
    fate: str
    reason: str = ""
    format: str = ""
    characters: int | None = None
    questions: int | None = None
    notes: tuple[str, ...] = ()
    document_id: str = ""

    def left_out(self, fate: str, reason: str) -> Fate:
        """The same file left out."""
        return replace(self, fate=fate, reason=reason)


def fate_row(fate: Fate) -> dict[str, Any]:
    """The fate as a row of the list of files."""
    return asdict(fate) | {"notes": "; ".join(fate.notes)}


def counted(fates: Iterable[Fate]) -> dict[str, Any]:
    """Counts of files: all, used, used by format, left out by reason; folders count as one."""
    used: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for fate in fates:
        if fate.fate == "used":
            used[fate.format] += 1
            notes.update(fate.notes)
        else:
            left_out[fate.fate] += 1
    return {
        "found": used.total() + left_out.total(),
        "used": used.total(),
        "formats": dict(sorted(used.items())),
        "left_out": {reason: left_out[reason] for reason in FATES if left_out[reason]},
        "notes": dict(sorted(notes.most_common(_MOST_NOTES))),
    }


def listed(counts: Mapping[str, Any]) -> str:
    """The counts as a sentence without its full stop."""
    formats = ", ".join(f"{n:,} {kind}" for kind, n in counts["formats"].items())
    left_out = ", ".join(f"{n:,} {_words(reason, n)}" for reason, n in counts["left_out"].items())
    found = counts["found"]
    sentence = f"{found:,} file{'s' * (found != 1)} found, {counts['used']:,} used"
    if formats:
        sentence += f" ({formats})"
    return f"{sentence}; left out: {left_out}" if left_out else sentence


def _words(reason: str, n: int) -> str:
    return " ".join(
        word.split("|")[0 if n == 1 else -1] if "|" in word else word
        for word in FATES[reason].split(" ")
    )


def account_of(
    fates: Collection[Fate], used: int, lost: Mapping[str, int], table: str | None
) -> dict[str, Any]:
    """The corpus's account: ``used`` questions from ``table``, or made where that is None.

    ``lost``: questions on documents that are left out, by the documents' fate.
    """
    files = counted(fates)
    unknown = sum(
        fate.fate == "used" and any(note.startswith(UNKNOWN_GLYPHS) for note in fate.notes)
        for fate in fates
    )
    source = f"from {table}" if table else "of verbatim recall, made from the texts"
    sentence = f"{used:,} question{'s' * (used != 1)} {source}"
    if gone := sum(lost.values()):
        sentence += f", {gone:,} more on documents that are left out"
    if unknown:
        sentence += f". Documents with {UNKNOWN_GLYPHS}: {unknown:,} (the list of files has them)"
    account: dict[str, Any] = {
        "summary": f"{listed(files)}. {sentence}.",
        "files": files,
        "questions": {"used": used, "lost": dict(sorted(lost.items()))},
        "list": "files.csv",
    }
    return account if table else account | {"cautions": [_ABOUT_RECALL]}


def first_reasons(fates: Iterable[Fate]) -> str:
    """Why the first few files give no question, and how many more do not."""
    telling = [fate for fate in fates if fate.fate not in ("questions", "hidden", "used")]
    why = "; ".join(f"{fate.file} {fate.reason}" for fate in telling[:_FIRST])
    more = len(telling) - _FIRST
    return f"{why}; and {more:,} more" if more > 0 else why
