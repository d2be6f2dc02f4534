"""Refusals that begin at a length: a limit of the server's on the prompt, whatever it says.

Where the same words (numbers apart) refuse at least `LEAST` requests, none of them shorter than one
that was answered, the prompts did not fit. That is never for good: a later run asks the shortest of
them again, and the others where it is answered.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.requests.call_plan import PlannedCall
from contextcliff_dagster.inference.requests.outcome import Failure, Outcome

LEAST = 3
REFUSED = "rejected"
"""Kind of a failure whose request the server refused, for reasons of its own."""


def same_words(message: str) -> str:
    """What a refusal says, without its numbers."""
    return re.sub(r"\d[\d.,]*", "#", message)


def beyond_a_limit(
    calls: Iterable[PlannedCall],
    outcomes: Mapping[str, Outcome],
    failures: Mapping[str, Failure],
    seen: Mapping[str, int] | None = None,
) -> list[PlannedCall]:
    """The calls that were refused by their length, shortest first.

    Args:
        outcomes, failures: of the calls; the latter of those without an outcome.
        seen: words (`same_words`) -> requests of the model that they refused; those of ``calls``
            alone by default.
    """
    refused: defaultdict[str, list[PlannedCall]] = defaultdict(list)
    answered = 0
    for call in calls:
        outcome, failure = outcomes.get(call.call_key), failures.get(call.call_key)
        if outcome is not None and outcome.no_answer is None:
            answered = max(answered, call.length_tokens)
        elif outcome is None and failure and failure.final and failure.kind == REFUSED:
            refused[same_words(failure.message)].append(call)
    found = [
        call
        for words, of_words in refused.items()
        if (len(of_words) if seen is None else seen.get(words, 0)) >= LEAST
        and min(call.length_tokens for call in of_words) > answered
        for call in of_words
    ]
    return sorted(found, key=lambda call: call.length_tokens)


def refusals_of(ledger: Ledger, study: str, campaign: str, model: str) -> Counter[str]:
    """Words (`same_words`) -> calls of a model that they refused for good in a campaign."""
    rows = ledger.read(
        "SELECT DISTINCT f.call_key, f.message FROM failures f JOIN attempts a USING (attempt_id)"
        " WHERE a.study = ? AND a.campaign = ? AND a.model = ? AND f.kind = ? AND f.final = 1",
        (study, campaign, model, REFUSED),
    )
    return Counter(same_words(words) for words in dict(rows).values())
