"""Checks of a model's token counts (the server's against ours) and of its serving identity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from contextcliff_dagster.contracts import EngineError, StudyError
from contextcliff_dagster.inference.engines.base import PromptCount, Usage, declared_identity
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.entry import Identity, differences
from contextcliff_dagster.inference.models.kv_variants import parse_kv_variant
from contextcliff_dagster.inference.models.models_file import ModelEntry, Price, get_model
from contextcliff_dagster.inference.requests.call_plan import Outcome, PlannedCall
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import Spend, prompt_tokens_estimate

TRUNCATION_SHARE = 0.02
TRUNCATION_TOKENS = 8
"""Slack for counts of the texts alone, whose ends may merge with the template's tokens."""
TEMPLATE_TOKENS = 256
CHARS_A_TOKEN = 16
"""Maximum average characters per token in a text; English has four to five."""
MOST_TIMES = 10
PROMPT_MARGIN, OUTPUT_MARGIN = 4_096, 1 << 17
"""Margins for a reported usage: up to `MOST_TIMES` our own count is accepted, plus a gateway's
system text, or as much reasoning, which some servers count outside the limit, as today's longest
outputs have. The charge is less: see `charge`."""


@dataclass(frozen=True, slots=True)
class CallSize:
    """A call's tokens by our own count: the prompt as reserved, as estimated before the campaign's
    correction, and at least; the output limit; and the most reasoning beyond that limit."""

    prompt_tokens: int
    estimated_tokens: int
    least_prompt_tokens: int
    output_tokens: int
    most_reasoning: int = OUTPUT_MARGIN

    def reserve(self, price: Price | None) -> Spend:
        """Return the amount to reserve, with output up to its limit and no cache discount."""
        usd = price.cost_usd(self.prompt_tokens, self.output_tokens) if price else 0.0
        return Spend(usd, self.prompt_tokens + self.output_tokens, 1)


def size_of(
    call: PlannedCall,
    prompt: Prompt,
    own: PromptCount | None,
    *,
    window_tokens: int | None = None,
    most_of_estimate: float = 1.0,
) -> CallSize:
    """Return the size of ``call``.

    Args:
        own: the model's own count of the prompt: exact, or a lower bound.
        window_tokens: the longest prompt and output.
        most_of_estimate: the server's largest count relative to our estimate.
    """
    chars = sum(map(len, prompt.contents()))
    least = max(least_seen(own), chars // CHARS_A_TOKEN)
    estimated = reserved = max(own.tokens if own else 0, least)
    if own is None or not own.exact:
        estimate = prompt_tokens_estimate(call.length_tokens, len(call.document), chars)
        estimated = max(estimated, estimate)
        reserved = math.ceil(estimated * min(max(1.0, most_of_estimate), MOST_TIMES))
    most = OUTPUT_MARGIN
    if window_tokens:
        reserved = max(min(reserved, window_tokens), estimated)
        most = max(min(window_tokens - least, OUTPUT_MARGIN), 0)
    return CallSize(reserved, estimated, least, call.recipe.max_output_tokens, most)


def least_seen(own: PromptCount | None) -> int:
    """Return the fewest tokens that a server must report for an uncut prompt; 0 if unknown.

    An exact count must be met; a count of the texts alone is a lower bound, with a little slack.
    """
    if own is None or own.exact:
        return own.tokens if own else 0
    return max(0, -int(-(own.tokens * (1 - TRUNCATION_SHARE) - TRUNCATION_TOKENS) // 1))


def was_truncated(own: PromptCount | None, server_tokens: int | None) -> bool | None:
    """Return whether the server saw fewer tokens than were sent, or None if a count is missing (see
    `least_seen`)."""
    if own is None or server_tokens is None:
        return None
    return server_tokens < least_seen(own)


def whole_prompt(usage: Usage, own: PromptCount | None) -> Usage:
    """Return ``usage`` with cached tokens added to the prompt's, if the server counts them
    separately: without them it saw too little, and with them what was sent."""
    read, cached = usage.prompt_tokens, usage.cached_tokens
    if own is None or not cached or not was_truncated(own, read):
        return usage
    total = (read or 0) + cached
    most = own.tokens * (1 + TRUNCATION_SHARE) + TEMPLATE_TOKENS
    return replace(usage, prompt_tokens=total) if least_seen(own) <= total <= most else usage


def is_too_large(usage: Usage, size: CallSize) -> bool:
    """Return whether a usage is far above what was read or written. It then counts as missing, so
    that no single reply can use up a budget."""
    return (usage.prompt_tokens or 0) > MOST_TIMES * size.estimated_tokens + PROMPT_MARGIN or (
        usage.completion_tokens or 0
    ) > MOST_TIMES * size.output_tokens + OUTPUT_MARGIN


def believed(usage: Usage, size: CallSize, text: str) -> Usage:
    """Return ``usage`` with its output limited to what is possible: the output limit or, if longer,
    the answer (a token of ``text`` has at least one byte), plus reasoning within the window."""
    if usage.completion_tokens is None:
        return usage
    most = max(size.output_tokens, len(text.encode("utf-8", "surrogatepass"))) + min(
        usage.reasoning_tokens or 0, size.most_reasoning
    )
    return replace(usage, completion_tokens=min(usage.completion_tokens, most))


def charge(outcome: Outcome, size: CallSize, price: Price | None) -> Spend:
    """Return the charge for a stored outcome: its usage, as far as that `is believed <believed>`.

    Without a usage, charge the reservation plus any output beyond its limit. The same holds if the
    report is less than prompt and output must have had: under-reporting must not lower the charge.
    A cache discount is believed.
    """
    reserved = size.reserve(price)
    written_at_least = len((outcome.raw_output or "") + (outcome.reasoning or "")) // CHARS_A_TOKEN
    if (excess := written_at_least - size.output_tokens) > 0:
        usd = reserved.usd + (price.cost_usd(0, excess) if price else 0.0)
        reserved = Spend(usd, reserved.tokens + excess, 1)
    read, written = outcome.prompt_tokens, outcome.completion_tokens
    if read is None or written is None:
        return reserved
    usd = reserved.usd if outcome.cost_usd is None else outcome.cost_usd
    if read >= size.least_prompt_tokens and written >= written_at_least:
        return Spend(usd, read + written, 1)
    return Spend(max(usd, reserved.usd), max(read + written, reserved.tokens), 1)


SERVER_PREFIX = "server_"
"""Prefix of the identity fields that are known only once the engine runs."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The identity recorded under a model's name in a campaign."""

    study: str
    campaign: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Known:
    """A model's identity by its entry and weights now (None if unknown: ``why_not``), and by the
    records of a campaign."""

    model: str
    declared: Mapping[str, Any] | None
    why_not: str | None
    recorded: Recorded | None

    @property
    def fields(self) -> dict[str, Any]:
        """The declared fields, plus the engine's report unless the declaration changed since."""
        before = dict(self.recorded.identity.fields) if self.recorded else {}
        if self.declared is None:
            return before
        reported = {name: value for name, value in before.items() if name.startswith(SERVER_PREFIX)}
        return {**self.declared, **({} if self.changed else reported)}

    @property
    def changed(self) -> list[tuple[str, Any, Any]]:
        """Fields whose declared value differs from the recorded one: field, recorded, declared."""
        if self.declared is None or self.recorded is None:
            return []
        before = self.recorded.identity.fields
        return differences(
            {name: value for name, value in before.items() if not name.startswith(SERVER_PREFIX)},
            self.declared,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the identity, ready for JSON."""
        recorded = self.recorded
        return {
            "model": self.model,
            "declared": None if self.declared is None else dict(self.declared),
            "declared_unknown": self.why_not,
            "recorded": recorded
            and {
                "study": recorded.study,
                "campaign": recorded.campaign,
                "identity_hash": recorded.identity.hash,
                "fields": dict(recorded.identity.fields),
            },
            "changed_since_recorded": [
                {"field": name, "recorded": before, "declared": now}
                for name, before, now in self.changed
            ],
        }


def known_identity(
    model: str,
    entries: Mapping[str, ModelEntry],
    ledger: Ledger | None,
    study: str | None = None,
    campaign: str | None = None,
) -> Known:
    """Return the declared identity of ``model`` and the one recorded by its newest campaign.

    Args:
        study, campaign: limit the search to their records.

    Raises:
        StudyError: neither models.yaml nor a campaign has the name.
        EngineError: nothing is recorded, and the declared identity is unavailable (no weights).
    """
    recorded = _newest(ledger, model, study, campaign) if ledger else None
    why_not = "it is not in models.yaml"
    if model in entries:
        try:
            return Known(model, declared_identity(entries[model]), None, recorded)
        except EngineError as error:
            if recorded is None:
                raise
            why_not = str(error)
    if recorded is None:
        if parse_kv_variant(model):
            get_model(model, entries)  # raises an error with the reason
        raise StudyError(
            f"Model {model!r} is not in models.yaml, and no campaign has measured it; "
            f"known models: {', '.join(sorted(entries))}."
        )
    return Known(model, None, why_not, recorded)


def require_campaign(ledger: Ledger | None, study: str | None, campaign: str | None) -> None:
    """Raise an error if the ledger lacks the requested campaign."""
    if study is None and campaign is None:
        return
    campaigns = list_campaigns(ledger, study) if ledger else []
    if not any(campaign in (None, known.name) for known in campaigns):
        what = [f"study {study!r}" if study else "", f"campaign {campaign!r}" if campaign else ""]
        raise StudyError(
            f"The ledger has no {' with a '.join(filter(None, what))}; see `contextcliff campaign "
            "list`."
        )


def _newest(ledger: Ledger, model: str, study: str | None, campaign: str | None) -> Recorded | None:
    conditions = {"m.model": model, "m.study": study, "m.campaign": campaign}
    filters = {name: value for name, value in conditions.items() if value is not None}
    rows = ledger.read(
        "SELECT m.study, m.campaign, i.body FROM campaign_models m"
        " JOIN identities i USING (identity_hash)"
        f" WHERE {' AND '.join(f'{name} = ?' for name in filters)}"
        " ORDER BY m.recorded_at DESC LIMIT 1",
        tuple(filters.values()),
    )
    return Recorded(rows[0][0], rows[0][1], Identity(json.loads(rows[0][2]))) if rows else None
