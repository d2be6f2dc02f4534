"""From predictions to evaluation records: one scored row per call, with no call left out.

Each answer whose server counted fewer prompt tokens than were sent is marked on arrival
(`invalid_truncated`). That needs our own count. Without it, a silent cut still shows across all
calls of a model: documents of different lengths, all read as the same, largest number of tokens.

A record failed if exact match is 0 (containment, if that is the study's primary score) or the
answer cannot be parsed. Only failed records carry a failure tag. The three outcomes without an
answer keep their name as the tag; scores and `failed` are null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from contextcliff_dagster.contracts import (
    ANSWER_IN,
    EVAL_RECORDS,
    NO_ANSWERS,
    UNSCORED_TAGS,
    Example,
    FailureTag,
    PrimaryScore,
    StoreError,
)
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.scoring.containment import Haystack
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import AUTO, TYPED, Scorer, open_scorer, scorer_of
from contextcliff_dagster.scoring.taxonomy import tag_failure
from contextcliff_dagster.scoring.typed import typed_scorer

TRUNCATED_SHARE_LIMIT = 0.01
"""A model's results are not trustworthy if a larger fraction of its calls was cut."""
COLUMNS = ("model", "document_id", "length_tokens", "prompt_tokens", "own_prompt_tokens", "failure")
"""Columns of ``EVAL_RECORDS`` that this module reads."""

_TIED_DOCUMENTS = 3
_TIED_SPREAD = 0.05
"""Documents whose lengths differ by at most this fraction may have equal token counts."""
_TOKENS_PER_TOKEN = 4
"""Maximum number of a model's tokens per token of the study; a server that reports more is not
counting tokens."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Truncation:
    """Silent truncation of one model's prompts.

    ``calls``: those that the server answered; ``marked``: those tagged ``invalid_truncated``;
    ``at_ceiling``: further ones whose prompts were all reported as ``ceiling_tokens`` tokens;
    ``from_tokens``: length of the shortest document that was cut; ``without_usage``,
    ``without_own_count``: answers that lack the server's count, or only ours.
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
        """Number of answers whose prompt lacks one of the two token counts to compare."""
        return self.without_usage + self.without_own_count

    @property
    def share(self) -> float:
        """The fraction of answered calls that were silently cut."""
        return (self.marked + self.at_ceiling) / self.calls if self.calls else 0.0

    @property
    def too_many(self) -> bool:
        """Whether this fraction is above the limit."""
        return self.share > TRUNCATED_SHARE_LIMIT


def truncations(rows: Iterable[Row]) -> list[Truncation]:
    """Return one entry per model, in order of first appearance. ``rows`` need `COLUMNS`."""
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        if row["failure"] not in ("context_overflow", "transport_error"):
            by_model.setdefault(str(row["model"]), []).append(row)
    return [_of_model(model, mine) for model, mine in by_model.items()]


def _of_model(model: str, rows: Sequence[Row]) -> Truncation:
    marked = [row for row in rows if row["failure"] == "invalid_truncated"]
    counted_rows = [row for row in rows if row["prompt_tokens"] is not None]
    tied = _at_ceiling(counted_rows)
    cut_rows = [*marked, *(row for row in tied if row["failure"] != "invalid_truncated")]
    return Truncation(
        model,
        calls=len(rows),
        marked=len(marked),
        at_ceiling=len(cut_rows) - len(marked),
        ceiling_tokens=int(tied[0]["prompt_tokens"]) if tied else None,
        from_tokens=min((int(row["length_tokens"]) for row in cut_rows), default=None),
        without_usage=len(rows) - len(counted_rows),
        without_own_count=sum(row["own_prompt_tokens"] is None for row in counted_rows),
    )


def _at_ceiling(rows: Sequence[Row]) -> list[Row]:
    """Return the calls reported with the largest number of tokens, if their documents clearly
    differ in length; otherwise none."""
    ceiling = max((row["prompt_tokens"] for row in rows), default=None)
    tied = [row for row in rows if row["prompt_tokens"] == ceiling]
    lengths = {row["document_id"]: int(row["length_tokens"]) for row in tied}
    if len(lengths) < _TIED_DOCUMENTS or ceiling is None:
        return []
    shortest, longest = min(lengths.values()), max(lengths.values())
    differ = longest - shortest > _TIED_SPREAD * longest
    return tied if differ and ceiling <= _TOKENS_PER_TOKEN * shortest else []


def refusal(seen: Truncation, study: str) -> str:
    """Return what was cut, where, and what to do, for a model whose `Truncation.too_many` holds."""
    n_cut, ceiling = seen.marked + seen.at_ceiling, ""
    if seen.ceiling_tokens is not None:
        ceiling = f" (longer prompts are all read as {seen.ceiling_tokens:,} tokens)"
    return (
        f"The server of model {seen.model!r} read less than was sent in {n_cut:,} of "
        f"{seen.calls:,} calls of study {study!r} ({seen.share:.1%}; limit "
        f"{TRUNCATED_SHARE_LIMIT:.0%}), from documents of {seen.from_tokens or 0:,} tokens "
        f"on{ceiling}, without saying so: let the server take longer prompts, or set "
        "window_tokens in models.yaml to what it takes, then measure again under a new model "
        f"name or with `contextcliff campaign new {study}`."
    )


def unchecked(seen: Truncation) -> list[str]:
    """Return report sentences on cuts that may be undetected, or that do not matter."""
    sentences = []
    answers = seen.calls - seen.marked
    if seen.without_usage:
        sentences.append(
            f"The server of {seen.model} reported no prompt tokens for {seen.without_usage:,} of "
            f"{answers:,} answers: whether it cut those prompts silently is unknown."
        )
    if seen.without_own_count:
        sentences.append(
            f"We could not count the prompt tokens of {seen.without_own_count:,} of {answers:,} "
            "answers (tokenizer in models.yaml), so only a cut at one fixed length would show."
        )
    if seen.at_ceiling:
        sentences.append(
            f"{seen.at_ceiling:,} of {answers:,} answers are to prompts that the server all read "
            f"as {seen.ceiling_tokens or 0:,} tokens, though the documents differ in length: "
            "probably cut, but still scored."
        )
    return sentences


_NOT_SCORED: dict[str, Any] = dict.fromkeys(
    ("parsed_answer", "em", "f1", "contained", "score", "failed")
)
_OF_SCORING = {*_NOT_SCORED, "failure", "scorer_version"}
CALL_COLUMNS = tuple(name for name in EVAL_RECORDS.column_names if name not in _OF_SCORING)
"""Columns that a record has from its call."""
_CATEGORIES = ("kind", "domain", "source")
"""Other metadata fields of an example that give its question's category."""


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """How answers are scored, by the study and its recipe.

    ``scorer``: see `scorers`. ``max_output_tokens``: if a server gives no finish reason, an output
    of that many tokens counts as cut. ``answer_prefix`` is removed if a server repeats it.
    ``labels``: for `typed`, the small set that all accepted answers belong to.
    """

    primary: PrimaryScore = "em"
    scorer: str = AUTO
    output_schema: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    answer_prefix: str = ""
    labels: Sequence[str] = ()
    thought_tags: Sequence[str] = ()

    def scorer_of(self, example: Example) -> Scorer | None:
        """Return the example's own scorer; None if the scorer's name alone determines it."""
        if self.scorer == TYPED:
            return typed_scorer(example.question, self.labels, free=self.primary == "f1")
        return scorer_of(example.metadata) if self.scorer == AUTO else None


def score_rows(
    prediction_rows: Iterable[Mapping[str, Any]],
    examples: Mapping[str, Example],
    documents: Callable[[str], str],
    rules: ScoringRules,
) -> list[dict[str, Any]]:
    """Score rows of `PREDICTIONS` and return rows of `EVAL_RECORDS` in the same order.

    Args:
        prediction_rows: rows with the columns of `PREDICTIONS`.
        examples: the rows' examples, by example id.
        documents: document id -> text; called only if a failure tag depends on the document.

    Raises:
        StudyError: the scorer is unknown or fails; the schema is not a JSON Schema.
        StoreError: a row names an example that `examples` does not have.
    """
    judge = open_scorer(rules.scorer)

    # Neighbouring rows mostly share a document; only a few are cached, since they may be large.
    @lru_cache(maxsize=4)
    def haystack(document_id: str) -> Haystack:
        return Haystack(documents(document_id))

    records = []
    for row in prediction_rows:
        record = {name: row.get(name) for name in CALL_COLUMNS}
        record["scorer_version"] = SCORER_VERSION
        example = examples.get(str(row["example_id"]))
        if example is not None:
            record |= {name: _label(example.metadata.get(name)) for name in _CATEGORIES}
        if (no_answer := row.get("no_answer")) is not None:
            if no_answer not in UNSCORED_TAGS:
                raise StoreError(
                    f"A prediction of example {row.get('example_id')!r} has no answer for an "
                    f"unknown reason, {no_answer!r}; rebuild the predictions."
                )
            records.append(record | _NOT_SCORED | {"failure": no_answer})
            continue
        if example is None:
            raise StoreError(
                f"A prediction names example {row['example_id']!r}, which the manifest does not "
                "have; prepare the study again."
            )
        parsed = parse_answer(
            row.get("raw_output"),
            answer_prefix=rules.answer_prefix.replace("{question}", example.question),
            output_schema=rules.output_schema,
            thought_tags=rules.thought_tags,
        )
        instead = _content_instead(row.get("extra"))
        scores = (rules.scorer_of(example) or judge)(parsed, example.answers)
        if instead:
            scores = scores._replace(em=0.0, f1=0.0, contained=0.0)
        primary = scores.contained if rules.primary == "contained" else scores.em
        failed = primary == 0.0 or parsed.text is None
        tag: FailureTag | None = None
        if failed:
            tag = (
                NO_ANSWERS[instead]
                if instead
                else tag_failure(
                    parsed,
                    example,
                    document=partial(haystack, example.document_id),
                    finish_reason=_finish_reason(row, rules.max_output_tokens),
                    asks_schema=rules.output_schema is not None,
                    holds_accepted=scores.contained > 0.0,
                )
            )
        record |= scores._asdict() | {
            "parsed_answer": parsed.text,
            "score": getattr(scores, rules.primary),
            "failed": failed,
            "failure": tag and tag.value,
        }
        records.append(record)
    return records


def _content_instead(extra: str | None) -> str | None:
    """Return what the reply contains in place of an answer."""
    content = json.loads(extra).get(ANSWER_IN) if extra else None
    return content if content in NO_ANSWERS else None


def _label(value: Any) -> str | None:
    """Return ``value`` if it is a name, else None: a user's field ``kind`` may hold anything."""
    is_name = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value) if is_name else None


def _finish_reason(row: Mapping[str, Any], max_output_tokens: int | None) -> str | None:
    if (reason := row.get("finish_reason")) is not None:
        return str(reason)
    generated = row.get("completion_tokens")
    cut = max_output_tokens is not None and generated is not None and generated >= max_output_tokens
    return "length" if cut else None
