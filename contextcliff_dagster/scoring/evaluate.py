"""From predictions to evaluation records: one scored row per call, and nothing lost on the way.

A record failed where exact match is 0 (containment, where that is the study's primary score) or the
answer cannot be parsed. Only failed records carry a failure tag. The three outcomes that are no
answers keep their name as tag, and null in every score and in `failed`.
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
from contextcliff_dagster.scoring.published_rules import scorer_of
from contextcliff_dagster.scoring.scorers import AUTO, TYPED, Scorer, open_scorer
from contextcliff_dagster.scoring.taxonomy import tag_failure
from contextcliff_dagster.scoring.typed import typed_scorer

_NOT_SCORED: dict[str, Any] = dict.fromkeys(
    ("parsed_answer", "em", "f1", "contained", "score", "failed")
)
_OF_SCORING = {*_NOT_SCORED, "failure", "scorer_version"}
_CALL_COLUMNS = tuple(name for name in EVAL_RECORDS.column_names if name not in _OF_SCORING)
_CATEGORIES = ("kind", "domain", "source")
"""What else an example may say of the category that its question is of."""


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """How answers are scored: what the study and its recipe say.

    Args:
        primary: the score that becomes `score`.
        scorer: `auto`, `typed`, `text`, `numeric`, `choice`, `structured`, or an entry point (see
            `scorers`).
        output_schema: the JSON Schema that the recipe asks answers to fit, if it does.
        max_output_tokens: the recipe's limit: where a server gives no finish reason, an output of
            so many tokens was cut by it.
        answer_prefix: how the recipe began the reply (it may contain ``{question}``); removed
            where a server repeats it.
        labels: of `typed`, what every accepted answer is one of; empty: no small set.
        thought_tags: further names of tags that the model thinks in.
    """

    primary: PrimaryScore = "em"
    scorer: str = AUTO
    output_schema: Mapping[str, Any] | None = None
    max_output_tokens: int | None = None
    answer_prefix: str = ""
    labels: Sequence[str] = ()
    thought_tags: Sequence[str] = ()

    def scorer_of(self, example: Example) -> Scorer | None:
        """The scorer of this example, where it depends on the example; None: the one by name."""
        if self.scorer == TYPED:
            return typed_scorer(example.question, self.labels, free=self.primary == "f1")
        return scorer_of(example.metadata) if self.scorer == AUTO else None


def score_rows(
    prediction_rows: Iterable[Mapping[str, Any]],
    examples: Mapping[str, Example],
    documents: Callable[[str], str],
    rules: ScoringRules,
) -> list[dict[str, Any]]:
    """The rows of `EVAL_RECORDS` for rows of `PREDICTIONS`, in the same order.

    Args:
        prediction_rows: rows with the columns of `PREDICTIONS`.
        examples: by example id, those that the rows name.
        documents: document id -> text; asked only where a failure tag depends on the document.

    Raises:
        StudyError: the scorer is unknown or fails; the schema is no JSON Schema.
        StoreError: a row names an example that `examples` does not have.
    """
    judge = open_scorer(rules.scorer)

    # Neighbouring rows mostly share a document; a few are kept, since they may be large.
    @lru_cache(maxsize=4)
    def haystack(document_id: str) -> Haystack:
        return Haystack(documents(document_id))

    records = []
    for row in prediction_rows:
        record = {name: row.get(name) for name in _CALL_COLUMNS}
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
        instead = _instead(row.get("extra"))
        scores = (rules.scorer_of(example) or judge)(parsed, example.answers)
        if instead:
            scores = scores._replace(em=0.0, f1=0.0, contained=0.0)
        right = scores.contained if rules.primary == "contained" else scores.em
        failed = right == 0.0 or parsed.text is None
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


def _instead(extra: str | None) -> str | None:
    """What the reply holds in the place of an answer."""
    held = json.loads(extra).get(ANSWER_IN) if extra else None
    return held if held in NO_ANSWERS else None


def _label(value: Any) -> str | None:
    """``kind`` may be a field of the user's own file: anything but a name is none."""
    named = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value) if named else None


def _finish_reason(row: Mapping[str, Any], max_output_tokens: int | None) -> str | None:
    if (reason := row.get("finish_reason")) is not None:
        return str(reason)
    generated = row.get("completion_tokens")
    cut = max_output_tokens is not None and generated is not None and generated >= max_output_tokens
    return "length" if cut else None
