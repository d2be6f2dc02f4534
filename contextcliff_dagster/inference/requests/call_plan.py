"""The calls of a measurement: their prompts, keys and outcomes, and the order of sending.

If calls were sent in order of length, any drift while a model is measured (its server's load, a
deployment, a bad spell) would look like an effect of length. In blocks, drift is noise: each has
about one document of every bin, in random order (a randomized block design: Fisher 1935, The Design
of Experiments, chapter 4).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.inference.requests.recipe import (
    Prompt,
    Recipe,
    Turn,
    shared_text,
    stable_hash,
)
from contextcliff_dagster.sampling.manifest import SampleSource
from contextcliff_dagster.thoughts import without_thoughts

if TYPE_CHECKING:
    import numpy as np

ORIGIN = "origin"
"""Key in a table's ``extra`` for the archive that an answer comes from."""
Scalar = str | int | float | bool | None
"""JSON values other than lists and objects."""
NoAnswer = Literal["context_overflow", "invalid_truncated", "content_filter"]


def utc_now() -> str:
    """Return the current UTC time as ISO 8601 text with microseconds, which sorts by time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def valid_text(text: str) -> str:
    """Return ``text`` in a form that any database can store: surrogate pairs are joined, and
    invalid characters (a half alone, NUL) become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\ufffd")


def measurements(values: object) -> dict[str, Scalar] | None:
    """Return the items of ``values`` that are JSON scalars, or None if there are none.

    Numbers of NumPy and torch become Python's. Anything else (lists, NaN) is left out, so that a
    malformed measurement never costs its answer.
    """
    if not isinstance(values, Mapping):
        return None
    scalars: dict[str, Scalar] = {}
    for name, value in values.items():
        with suppress(Exception):
            number = value if isinstance(value, Scalar) else value.item()
            if isinstance(name, str) and isinstance(number, Scalar):
                json.dumps([name, number], ensure_ascii=False, allow_nan=False).encode()
                scalars[name] = number
    return scalars or None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a finished call. Times in ms, cost in USD, None if unknown.

    ``attempts`` counts the requests of the process that finished the call; requests of a process
    that died are orphans, counted separately. ``loop_lag_ms``: the longest delay of our own event
    loop meanwhile, which bounds our share of the times. ``queue_ms``: waiting inside the engine,
    which the other times exclude. ``reasoning_tokens`` are part of ``completion_tokens``.
    ``extra``: the engine's other measurements, by name.
    """

    no_answer: NoAnswer | None = None
    raw_output: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    own_prompt_tokens: int | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    queue_ms: float | None = None
    loop_lag_ms: float | None = None
    attempts: int = 0
    cost_usd: float | None = None
    error: str | None = None
    finished_at: str = ""
    extra: Mapping[str, Scalar] | None = None

    @property
    def reasoned_out(self) -> bool:
        """Whether reasoning used up the output limit, so that there is no answer."""
        if self.no_answer is not None or self.finish_reason != "length":
            return False
        answer, unended = without_thoughts(self.raw_output or "")
        return unended or not answer.strip()


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why an attempt brought no answer; ``final``: the run gave up (a later one
    retries)."""

    kind: str
    message: str
    maybe_paid: bool = False
    status: int | None = None
    final: bool = False
    attempts: int = 1
    at: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", valid_text(self.message))


@dataclass(frozen=True, slots=True)
class MaybePaid:
    """Number and charge of requests without a stored answer that may have been paid for."""

    requests: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Orphan:
    """A request whose process died before storing its answer; it may be paid, and is charged."""

    call_key: str
    study: str
    campaign: str
    model: str
    started_at: str
    reserved_usd: float


@dataclass(frozen=True)
class PlannedCall:
    """A call to make: an example, a replicate, and its key in the ledger.

    ``parts`` records how the prompt was built if it has more than document and question: ``after``
    has the keys of the conversation's earlier calls, whose questions and answers are ``turns``;
    other names are the experiment's notes, ready for JSON. It is stored with the call.
    """

    call_key: str
    example: Example
    length_tokens: int
    bin: str
    rank: int
    replicate: int
    recipe: Recipe
    document_text: Callable[[str], str]
    turns: tuple[Turn, ...] = ()
    parts: Mapping[str, Any] | None = None

    @property
    def document(self) -> str:
        """The document's text, read on demand."""
        return shared_text(self.example.document_id, self.document_text).text

    def prompt(self) -> Prompt:
        """Return the rendered prompt, with the positions of its evidence if attention is wanted."""
        document = shared_text(self.example.document_id, self.document_text)
        prompt = self.recipe.render(document, self.example.question, self.replicate, self.turns)
        if not self.recipe.attention:
            return prompt
        from contextcliff_dagster.sampling.draw_manifest import spans_of  # loads numpy

        return replace(prompt, evidence=tuple(spans_of(self.example.metadata, document.text)))


def call_key(
    identity_hash: str,
    recipe: Recipe,
    example: Example,
    replicate: int,
    campaign: str,
    parts: Mapping[str, Any] | None = None,
) -> str:
    """Return the key of a call: identity, question, text and campaign.

    The key excludes the study: two studies of one store with the same question in campaigns of the
    same name share the answer. It includes ``parts`` if there are any.
    """
    fields = [
        identity_hash,
        recipe.replicate_hash(replicate),
        example.document_id,
        example.question,
        replicate,
        campaign,
    ]
    # Without parts the key stays the one from before parts existed: nothing is paid twice.
    return stable_hash([*fields, dict(parts)] if parts else fields)


def follow_up(call: PlannedCall, answer: str, question: str, **notes: Any) -> PlannedCall:
    """Return the conversation's next call, ``question``, after ``call`` and its answer.

    Its key combines the key of ``call``, the ``answer`` and the question, so a resumed run plans
    the same calls from the same answers. ``notes`` (JSON-ready) record how the question was made;
    they are stored, and included in the key.
    """
    parts = {**notes, "after": [*(call.parts or {}).get("after", ()), call.call_key]}
    return replace(
        call,
        call_key=stable_hash([call.call_key, answer, question, parts]),
        example=replace(call.example, question=question),
        turns=(*call.turns, Turn(call.example.question, answer)),
        parts=parts,
    )


FollowUp = Callable[[PlannedCall, Outcome], PlannedCall | None]
Outcomes = Callable[[Iterable[str]], Mapping[str, Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """The calls that a study's campaign makes to each model: the first ``n`` examples of ``source``
    in each bin, asked by ``recipe``.

    ``follow_up``: returns the call after one with this outcome (see the function of this name), or
    None at a conversation's end; if it is None, each example is asked once. ``steps``: calls in a
    whole conversation.
    """

    study: str
    campaign: str
    source: SampleSource
    recipe: Recipe
    bins: Sequence[str]
    n: int
    follow_up: FollowUp | None = None
    steps: int = 1

    def calls(self, identity_hash: str, outcomes: Outcomes | None = None) -> list[PlannedCall]:
        """Return the calls of the model with this serving identity, in the order of `plan_calls`.

        With ``outcomes`` (call keys -> known outcomes), also the calls that follow from the answers
        so far, step by step: all first questions, then all second ones, and so on.
        """
        step = plan_calls(self.source, identity_hash, self.recipe, self.campaign, self.bins, self.n)
        planned = list(step)
        while step and self.follow_up is not None and outcomes is not None:
            outcomes_by_key = outcomes(call.call_key for call in step)
            ended = [call for call in step if call.call_key in outcomes_by_key]
            following = [self.follow_up(call, outcomes_by_key[call.call_key]) for call in ended]
            step = [call for call in following if call is not None]
            planned += step
        return planned


def plan_calls(
    manifest: SampleSource,
    identity_hash: str,
    recipe: Recipe,
    campaign: str,
    bins: Sequence[str],
    n: int,
) -> list[PlannedCall]:
    """Return the calls for the first ``n`` examples of each bin, times the recipe's replicates.

    Order: bins as given; within a bin in the manifest's order, except that questions on one
    document are adjacent (servers with a prefix cache then read it once) or, if the recipe wants no
    prefix cache, as far apart as possible: one question of each document, then the next.
    """
    calls: list[PlannedCall] = []
    for name in bins:
        planned = list(manifest.planned(name, n))
        first_seen: dict[str, int] = {}
        for sample in planned:
            first_seen.setdefault(sample.example.document_id, sample.rank)
        planned.sort(key=lambda sample: (first_seen[sample.example.document_id], sample.rank))
        bin_calls = [
            PlannedCall(
                call_key=call_key(identity_hash, recipe, sample.example, replicate, campaign),
                example=sample.example,
                length_tokens=sample.length_tokens,
                bin=name,
                rank=sample.rank,
                replicate=replicate,
                recipe=recipe,
                document_text=manifest.document_text,
            )
            for sample in planned
            for replicate in range(recipe.replicates)
        ]
        calls.extend(bin_calls if recipe.prefix_cache else _interleaved(bin_calls))
    return calls


def _interleaved(calls: Sequence[PlannedCall]) -> list[PlannedCall]:
    """Return the first call of each document, then the second of each, and so on."""
    by_document = [list(g) for _, g in groupby(calls, lambda call: call.example.document_id)]
    return [call for turn in zip_longest(*by_document) for call in turn if call is not None]


_Group = list["PlannedCall"]
_Documents = dict[str, _Group]
Order = Literal["blocks", "by_length"]
_DRAWS = 32
"""Number of orders to draw; the one with the least correlation is used, because with one or two
documents per bin a single order may well follow length."""


def in_blocks(calls: Sequence[PlannedCall], seed: int) -> list[PlannedCall]:
    """Return ``calls`` in seeded blocks of about one document of every bin.

    The i-th of a bin's k documents goes to a random place in the i-th of k equal stretches, so that
    a bin with few documents also spreads over the whole run. Questions on one document stay in the
    order of `plan_calls`.
    """
    import numpy as np

    bins: defaultdict[str, _Documents] = defaultdict(dict)
    for call in calls:
        bins[call.bin].setdefault(call.example.document_id, []).append(call)
    rng = np.random.default_rng(seed)
    orders = [_draw(bins.values(), rng) for _ in range(_DRAWS)]
    return min(orders, key=_correlation)


def length_time_correlation(length_tokens: Sequence[int]) -> float:
    """Return Spearman's rank correlation of lengths with their order; 0 for equal lengths.

    >>> round(length_time_correlation([10, 20, 20, 30]), 2)
    0.95
    """
    import numpy as np

    _, rank, count = np.unique(length_tokens, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - 0.5 * (count - 1)
    of_length = middle[rank] - 0.5 * (len(rank) + 1)
    place = np.arange(len(rank)) - 0.5 * (len(rank) - 1)
    spread = float(np.sqrt((of_length**2).sum() * (place**2).sum()))
    return float((of_length * place).sum()) / spread if spread > 0 else 0.0


def _draw(bins: Iterable[_Documents], rng: np.random.Generator) -> _Group:
    import numpy as np

    placed: list[tuple[float, _Group]] = []
    for documents in bins:
        groups = list(documents.values())
        groups = _groups([groups[i] for i in rng.permutation(len(groups))])
        places = (np.arange(len(groups)) + rng.random(len(groups))) / len(groups)
        placed += zip(places, groups, strict=True)
    return [call for _, group in sorted(placed, key=itemgetter(0)) for call in group]


def _groups(documents: list[_Group]) -> list[_Group]:
    """Return the calls to send without a call of the same bin between them, group by group."""
    if documents[0][0].recipe.prefix_cache:
        return documents
    return [[call] for turn in zip_longest(*documents) for call in turn if call is not None]


def _correlation(calls: _Group) -> float:
    return abs(length_time_correlation([call.length_tokens for call in calls]))
