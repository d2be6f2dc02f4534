"""Prompts that a server shortened silently, found from all calls of a model.

Each answer whose server counted fewer prompt tokens than were sent is set apart as it comes in
(`invalid_truncated`). That needs a count of our own. Without one a cut still shows in the calls
together: documents of different lengths that were all read as the same, largest number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRUNCATED_SHARE_LIMIT = 0.01
"""Above this share of a model's calls its results are not to be believed."""
COLUMNS = ("model", "document_id", "length_tokens", "prompt_tokens", "own_prompt_tokens", "failure")
"""Columns of ``EVAL_RECORDS`` that are read here."""

_TIED_DOCUMENTS = 3
_TIED_SPREAD = 0.05
"""Documents as much alike in length as this may well have the same number of tokens."""
_TOKENS_PER_TOKEN = 4
"""No model's tokenizer gives more tokens than this for one of the study's: a server that says so
does not count."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Truncation:
    """What is known about one model.

    Attributes:
        model: its name.
        calls: calls that the server answered.
        marked: those among them with the tag ``invalid_truncated``.
        at_ceiling: further ones, whose prompts were all read as ``ceiling_tokens`` tokens.
        ceiling_tokens: that number; None where there is no such ceiling.
        from_tokens: shortest document that was cut; None where none was.
        without_usage: answers for which the server reported no prompt tokens.
        without_own_count: answers with prompt tokens of the server, but no count of our own.
    """

    model: str
    calls: int
    marked: int = 0
    at_ceiling: int = 0
    ceiling_tokens: int | None = None
    from_tokens: int | None = None
    without_usage: int = 0
    without_own_count: int = 0

    @property
    def unchecked(self) -> int:
        """Answers without two counts of the prompt's tokens to compare."""
        return self.without_usage + self.without_own_count

    @property
    def share(self) -> float:
        """Calls cut silently, of all that were answered."""
        return (self.marked + self.at_ceiling) / self.calls if self.calls else 0.0

    @property
    def too_many(self) -> bool:
        """Whether the share is above the limit."""
        return self.share > TRUNCATED_SHARE_LIMIT


def truncations(rows: Iterable[Row]) -> list[Truncation]:
    """One entry per model, in the order of first appearance. ``rows`` need `COLUMNS`."""
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        if row["failure"] not in ("context_overflow", "transport_error"):
            by_model.setdefault(str(row["model"]), []).append(row)
    return [_of_model(model, mine) for model, mine in by_model.items()]


def _of_model(model: str, rows: Sequence[Row]) -> Truncation:
    marked = [row for row in rows if row["failure"] == "invalid_truncated"]
    counted = [row for row in rows if row["prompt_tokens"] is not None]
    tied = _at_ceiling(counted)
    cut = [*marked, *(row for row in tied if row["failure"] != "invalid_truncated")]
    return Truncation(
        model,
        calls=len(rows),
        marked=len(marked),
        at_ceiling=len(cut) - len(marked),
        ceiling_tokens=int(tied[0]["prompt_tokens"]) if tied else None,
        from_tokens=min((int(row["length_tokens"]) for row in cut), default=None),
        without_usage=len(rows) - len(counted),
        without_own_count=sum(row["own_prompt_tokens"] is None for row in counted),
    )


def _at_ceiling(rows: Sequence[Row]) -> list[Row]:
    """Calls read as the largest number of tokens, where documents of clearly different lengths are
    among them."""
    most = max((row["prompt_tokens"] for row in rows), default=None)
    tied = [row for row in rows if row["prompt_tokens"] == most]
    lengths = {row["document_id"]: int(row["length_tokens"]) for row in tied}
    if len(lengths) < _TIED_DOCUMENTS or most is None:
        return []
    shortest, longest = min(lengths.values()), max(lengths.values())
    differ = longest - shortest > _TIED_SPREAD * longest
    return tied if differ and most <= _TOKENS_PER_TOKEN * shortest else []


def refusal(seen: Truncation, study: str) -> str:
    """What was cut, where, and what to do: for a model with `Truncation.too_many`."""
    cut, ceiling = seen.marked + seen.at_ceiling, ""
    if seen.ceiling_tokens is not None:
        ceiling = f" (longer prompts are all read as {seen.ceiling_tokens:,} tokens)"
    return (
        f"The server of model {seen.model!r} read less than was sent in {cut:,} of "
        f"{seen.calls:,} calls of study {study!r} ({seen.share:.1%}; limit "
        f"{TRUNCATED_SHARE_LIMIT:.0%}), from documents of {seen.from_tokens or 0:,} tokens "
        f"on{ceiling}, without saying so: let the server take longer prompts, or set "
        "window_tokens in models.yaml to what it takes, then measure again under a new model "
        f"name or with `contextcliff campaign new {study}`."
    )


def unchecked(seen: Truncation) -> list[str]:
    """Sentences for the report where a cut might have gone unnoticed, or did not matter."""
    sentences = []
    answers = seen.calls - seen.marked
    if seen.without_usage:
        sentences.append(
            f"The server of {seen.model} reported no prompt tokens for {seen.without_usage:,} of "
            f"{answers:,} answers: whether it cut those prompts silently is unknown."
        )
    if seen.without_own_count:
        sentences.append(
            f"For {seen.without_own_count:,} of {answers:,} answers there is no token count of "
            "our own (tokenizer in models.yaml): only a cut at one fixed length would be noticed."
        )
    if seen.at_ceiling:
        sentences.append(
            f"{seen.at_ceiling:,} of {answers:,} answers are to prompts that the server all read "
            f"as {seen.ceiling_tokens or 0:,} tokens, though the documents differ in length: "
            "probably cut, and scored all the same."
        )
    return sentences
