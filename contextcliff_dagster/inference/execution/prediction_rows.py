"""Prediction rows, rebuilt from the ledger alone, without calls or an engine.

Calls also show limits on prompt length, whatever the server reports. If the same words (numbers
aside) refuse at least `LEAST_REFUSED` requests, and none is shorter than an answered one, the
prompts did not fit. This is never final: a later run retries the shortest, and the others if it is
answered. If nothing is answered from some length on, those prompts did not fit either, though the
server accepted them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from contextcliff_dagster.contracts import ANSWER_IN, StoreError
from contextcliff_dagster.inference.engines.base import REFUSED
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.queries import UNRECORDED
from contextcliff_dagster.inference.ledger.schema import ANSWERED, either, joined, to_row
from contextcliff_dagster.inference.requests.call_plan import ORIGIN, CallPlan, Outcome

LEAST_REFUSED, LEAST_MUTE = 3, 5
MUTE_SHARE = 0.95
"""Minimum fraction of empty answers beyond a limit, and of nonempty ones below it."""
_SLACK = 0.95
"""Slack between sizes. They are bounds by our own count, so the server may order prompts within
this ratio of each other differently."""
_END = re.compile(r"<[|/][^<>]{1,24}>|<e[no][ds][^<>]{0,16}>")
"""Pattern for end markers that servers leave in the text."""
_SIZE = "coalesce(a.estimated_tokens, a.reserved_tokens)"
_OF_CALLS = "a.study = ? AND a.campaign = ? AND a.model = ?"


@dataclass(frozen=True, slots=True)
class Limits:
    """Keys of the calls that did not fit: ``refused``, shortest first, and ``mute``."""

    refused: tuple[str, ...] = ()
    mute: frozenset[str] = frozenset()


def limits_of(ledger: Ledger, study: str, campaign: str, model: str) -> Limits:
    """Return the limits that a model's calls in a campaign reveal together."""
    scope = (study, campaign, model)
    words = [f"substr({either(name)}, 1, 64)" for name in ("raw_output", "reasoning")]
    words.append(either("finish_reason"))
    answers = ledger.read(
        f"SELECT max({_SIZE}), a.call_key, {', '.join(f'max({word})' for word in words)}"
        f" FROM attempts a{joined('a')} WHERE {_OF_CALLS} AND {ANSWERED}"
        f" AND {either('no_answer')} IS NULL AND {either('pruned_at')} IS NULL GROUP BY a.call_key",
        scope,
    )
    refusals = ledger.read(
        f"SELECT f.call_key, f.message, {_SIZE} FROM failures f"
        f" JOIN attempts a ON a.attempt_id = f.attempt_id{joined('a')} WHERE {_OF_CALLS} AND f.kind"
        f" IN (?, 'http_500') AND f.final = 1 AND NOT {ANSWERED} ORDER BY f.attempt_id",
        (*scope, REFUSED),
    )
    by_words: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, (message, size) in {key: rest for key, *rest in refusals}.items():
        by_words[same_words(message)].append((size, key))
    answered = max((size for size, *_ in answers), default=0)
    refused = sorted(
        refusal
        for refusal_group in by_words.values()
        if len(refusal_group) >= LEAST_REFUSED and min(refusal_group)[0] > _SLACK * answered
        for refusal in refusal_group
    )
    sized = sorted((size, key, not is_said(*said)) for size, key, *said in answers)
    return Limits(tuple(key for _, key in refused), frozenset(_beyond(sized)))


def same_words(message: str) -> str:
    """Return a refusal's words without its numbers and request ids."""
    return re.sub(r"\b(?=[\w-]*\d)[\w-]{8,}\b|\d[\d.,]*", "#", message)


def is_said(text: str | None, reasoning: str | None, finish_reason: str | None) -> bool:
    """Return whether a model said anything, or was still thinking when its output ended."""
    return bool(reasoning) or finish_reason == "length" or bool(_END.sub("", text or "").strip())


def _beyond(sized: list[tuple[Any, str, bool]]) -> list[str]:
    """Return the keys of empty answers beyond the limit, if there is one; ``sized`` is sorted."""
    mute = [is_mute for *_, is_mute in sized]
    below = 0
    for place, is_mute in enumerate(mute):
        above = sum(mute[place:]) if is_mute else 0
        if (
            is_mute
            and min(place, len(mute) - place) >= LEAST_MUTE
            and below <= (1 - MUTE_SHARE) * place
            and above >= MUTE_SHARE * (len(mute) - place)
        ):
            return [key for _, key, silent in sized[place:] if silent]
        below += is_mute
    return []


MUTE = "the server answers nothing to prompts of this length"
_EVIDENCE = ("level", "evidence_position", "inter_evidence_tokens")


def prediction_rows(plan: CallPlan, model: str, ledger: Ledger) -> list[dict[str, Any]]:
    """Return rows of the table `contracts.PREDICTIONS` for the planned calls that have ended.

    Rows follow the plan's order. A call that a run gave up is a row with ``no_answer``
    transport_error (a later run retries it); a call that was never made, or was interrupted, has no
    row. The evidence of all calls overrides that of a single one: answers that a server always
    sends as thoughts, and prompts beyond a limit (`limits_of`).

    Raises:
        StoreError: outputs were pruned: an output that is gone is never taken for an empty one.
    """
    study, campaign = plan.study, plan.campaign
    identity = recorded_identity(ledger, study, campaign, model)
    if identity is None:
        return []
    read_for = ledger.reads_for(study, campaign, model)
    calls = plan.calls(identity.hash, partial(ledger.outcomes, study=read_for))
    keys = [call.call_key for call in calls]
    outcomes, origins = ledger.outcomes(keys, read_for), ledger.origins(keys, read_for)
    if gone := len(ledger.pruned(outcomes, read_for)):
        raise StoreError(
            f"The outputs of {gone:,} calls of campaign {campaign} of study {study!r} were removed "
            "by `contextcliff ledger prune --texts`, so its records cannot be rebuilt; read its "
            f"report as it is, or measure again with `contextcliff campaign new {study}`."
        )
    failures = ledger.failures([key for key in keys if key not in outcomes])
    prompt_hashes = ledger.prompt_hashes(keys)
    whole_replies = [
        o for o in outcomes.values() if o.no_answer is None and o.finish_reason != "length"
    ]
    in_thoughts = bool(whole_replies) and all(map(_thought_alone, whole_replies))
    # Limits show only in the calls of all bins, and only if some got no answer.
    some = failures or not all(map(_is_said, outcomes.values()))
    limits = limits_of(ledger, study, campaign, model) if some else Limits()
    # These documents were read in full: a lower count is not a cut, but the new tokens only.
    whole = {
        call.example.document_id
        for call in calls
        if (one := outcomes.get(call.call_key)) and one.no_answer is None and one.prompt_tokens
    }
    too_long, rows = "context_overflow", []
    for call in calls:
        outcome, failure = outcomes.get(call.call_key), failures.get(call.call_key)
        if outcome is not None:
            cut = outcome.no_answer == "invalid_truncated"
            if cut and outcome.raw_output is not None and call.example.document_id in whole:
                outcome = replace(outcome, no_answer=None, prompt_tokens=None, error=None)
            if call.call_key in limits.mute:
                outcome = replace(outcome, no_answer="context_overflow", error=MUTE)
            elif in_thoughts and _thought_alone(outcome):
                extra = {**(outcome.extra or {}), ANSWER_IN: "thoughts"}
                outcome = replace(outcome, raw_output=outcome.reasoning, extra=extra)
            if (origin := origins.get(call.call_key, UNRECORDED)) != UNRECORDED:
                outcome = replace(outcome, extra={**(outcome.extra or {}), ORIGIN: origin})
            ended = to_row(outcome)
            del ended["reasoning"]  # stays in the ledger
        elif failure is not None and failure.final:
            ended = {
                "no_answer": too_long if call.call_key in limits.refused else "transport_error",
                "attempts": failure.attempts,
                "error": f"{failure.kind}: {failure.message}",
                "finished_at": failure.at,
            }
        else:
            continue
        example = call.example
        rows.append(
            {
                "example_id": example.example_id,
                "document_id": example.document_id,
                "task": example.task,
                "bin": call.bin,
                "replicate": call.replicate,
                "instruction": call.recipe.instruction(call.replicate),
                "length_tokens": call.length_tokens,
                "call_key": call.call_key,
                **{name: example.metadata.get(name) for name in _EVIDENCE},
                "study": study,
                "campaign": campaign,
                "model": model,
                "identity_hash": identity.hash,
                "recipe_hash": plan.recipe.hash,
                "prompt_hash": prompt_hashes[call.call_key],
                **ended,
                "finished_at": datetime.fromisoformat(ended["finished_at"]),
            }
        )
    return rows


def _is_said(outcome: Outcome) -> bool:
    said = outcome.raw_output, outcome.reasoning, outcome.finish_reason
    return outcome.no_answer is not None or is_said(*said)


def _thought_alone(outcome: Outcome) -> bool:
    return not (outcome.raw_output or "").strip() and bool((outcome.reasoning or "").strip())
