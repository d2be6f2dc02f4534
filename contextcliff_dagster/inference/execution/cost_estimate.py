"""Estimated cost of a measurement in tokens, money and time, before any call.

This module also judges whether prompt and answer fit the window; nothing is ever cut.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import PromptCount, declared_identity
from contextcliff_dagster.inference.execution.checks import MOST_TIMES
from contextcliff_dagster.inference.ledger.backend import BATCH
from contextcliff_dagster.inference.ledger.campaigns import recorded_identity
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.entry import Identity
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.requests.call_plan import CallPlan, PlannedCall
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.inference.spending import (
    in_batches,
    price_notes,
    price_unknown,
    priced,
    prompt_tokens_estimate,
)

if TYPE_CHECKING:
    from contextcliff_dagster.inference.engines.kvpress.engine import KvReads


SCAFFOLD_CHARS_PER_TOKEN = 3
"""Low estimate for the few words around a document if the tokenizer is unknown."""
TEMPLATE_TOKENS = 100
"""Tokens of the longest chat templates, added if the count excludes the template: a server that
cuts long prompts would cut as much unnoticed."""


def unknown_window(model: str) -> str:
    """Return the note about a model whose window neither its entry nor its server gives."""
    return (
        f"Note: Model {model!r} has an unknown context window, so only its server can refuse "
        "prompts that are too long; set `window_tokens` in models.yaml."
    )


def overflows(
    call: PlannedCall, prompt: Prompt, own: PromptCount | None, window_tokens: int | None
) -> str | None:
    """Return a sentence if prompt + output do not fit; None if they do or the window is unknown.

    The model's own count is used; without one, the study's count of the document plus a careful
    guess for the rest. A server that refuses an unnoticed long prompt gives the same outcome.
    """
    if window_tokens is None:
        return None
    template = 0
    if own is not None:
        tokens, counted = own.tokens, "counted"
        if not own.exact and prompt.mode != "completion":
            template, counted = TEMPLATE_TOKENS, f"counted without {TEMPLATE_TOKENS} for a template"
    else:
        other_chars = sum(map(len, prompt.contents())) - len(call.document)
        tokens = call.length_tokens + math.ceil(other_chars / SCAFFOLD_CHARS_PER_TOKEN)
        counted = "estimated"
    needed = tokens + template + call.recipe.max_output_tokens
    if needed <= window_tokens:
        return None
    return (
        f"{tokens} prompt tokens ({counted}) and up to {call.recipe.max_output_tokens} of output "
        f"exceed the window of {window_tokens}; not sent"
    )


def require_independent(plan: CallPlan) -> None:
    """Raise EngineError if calls of ``plan`` depend on the answers before them, as no batch can."""
    if plan.follow_up is not None:
        raise EngineError(
            "Questions that depend on the answers before them cannot be asked in a batch; leave "
            "--batch or `calls: {batch: true}` out."
        )


_HISTORY_CALLS = 20


@dataclass(slots=True)
class CostLine:
    """Cost of one model in one bin; ``cached`` calls are paid, ``overflow`` calls will not be sent.

    ``prompt_tokens`` follow the study's count; ``output_tokens`` and USD assume the full output
    limit; ``usd_at_most`` is what the budget needs. USD are None without a price, and
    ``usd_in_batches`` without batches. ``control``: the plan's name, None for the measurement
    itself. ``too_long``: all calls that do not fit, whether recorded already or not.
    """

    model: str
    bin: str
    calls: int
    cached: int
    overflow: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    usd_at_most: float | None = None
    usd_streamed: float | None = None
    usd_in_batches: float | None = None
    seconds: float = 0.0
    control: str | None = None
    too_long: int = 0


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The lines and their sums. ``pace``: source of the seconds for each model. ``waiting``: calls
    that wait in batches, which count as known (cached).

    ``notes``: sentences about old prices, the memory and disk of engine `kvpress`, and work before
    the first call. ``price_unknown``: models with calls of unknown price
    (:func:`~.spending.price_unknown`).
    """

    lines: tuple[CostLine, ...]
    pace: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    price_unknown: tuple[str, ...] = ()
    in_batches: bool = False
    waiting: int = 0

    @property
    def calls(self) -> int:
        """Number of calls still to be sent."""
        return sum(line.calls - line.cached - line.overflow for line in self.lines)

    @property
    def cached(self) -> int:
        """Number of calls that the ledger already has."""
        return sum(line.cached for line in self.lines)

    @property
    def tokens(self) -> int:
        """Prompt and output tokens still to be paid for."""
        return sum(line.prompt_tokens + line.output_tokens for line in self.lines)

    @property
    def usd(self) -> float:
        """Sum over the lines with a price, in USD."""
        return sum(line.usd or 0.0 for line in self.lines)

    @property
    def usd_at_most(self) -> float:
        """Sum for which the budget must have room, in USD."""
        return sum(line.usd_at_most or 0.0 for line in self.lines)

    @property
    def usd_streamed(self) -> float:
        """Sum over the lines with a price, in USD, if no call is asked in a batch."""
        return sum(line.usd_streamed or 0.0 for line in self.lines)

    @property
    def usd_in_batches(self) -> float | None:
        """Sum in USD if all calls that can be are asked in batches; None if none can be."""
        if all(line.usd_in_batches is None for line in self.lines):
            return None
        usd = (line.usd_in_batches or line.usd_streamed for line in self.lines)
        return sum(usd for usd in usd if usd)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models without a price entry that have calls to make."""
        unknown = (line for line in self.lines if line.usd is None and line.calls > line.cached)
        return tuple(sorted({line.model for line in unknown}))

    @property
    def seconds(self) -> float:
        """Time to run all models one after another."""
        return sum(line.seconds for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Return sums and lines, ready for JSON."""
        names = "calls cached tokens usd usd_at_most usd_streamed usd_in_batches seconds".split()
        return {
            **{name: getattr(self, name) for name in names},
            "unpriced": list(self.unpriced),
            "price_unknown": list(self.price_unknown),
            "pace": dict(self.pace),
            "notes": list(self.notes),
            "lines": [asdict(line) for line in self.lines],
        }


def estimate(
    plans: Sequence[tuple[str | None, CallPlan]],
    entries: Sequence[ModelEntry],
    ledger: Ledger | None,
    skipped: Container[tuple[str | None, str]] = (),
    *,
    batched: bool = False,
) -> CostEstimate:
    """Estimate the cost of measuring ``entries`` without making calls or starting engines.

    ``plans``: the questions by name; None names the study's own measurement. Each plan has its own
    lines. Calls that follow answers not yet known count as a whole conversation, each as long as
    the last known one. ``skipped``: pairs of a plan's name and a model that does not get this plan.
    ``batched``: whether the calls are asked in batches.

    Raises:
        EngineError: a model or a plan cannot be asked in batches.
    """
    for _, plan in plans if batched else ():
        require_independent(plan)
    lines: list[CostLine] = []
    pace: dict[str, str] = {}
    notes: list[str] = []
    unknown: list[str] = []
    imported: dict[str, str] = {}
    asked = 0
    from contextcliff_dagster.inference.engines.kvpress.engine import KvReads

    reads = KvReads()
    for entry in map(priced, entries):
        if batched:
            entry = in_batches(entry)
        before = len(lines)
        base_s, token_s, pace[entry.name] = _pace(entry, ledger)
        for control, plan in plans:
            if (control, entry.name) in skipped:
                continue
            identity = _likely_identity(entry, ledger, plan.study, plan.campaign)
            most = 1.0
            if ledger:
                server_share = ledger.most_of_estimate(plan.study, plan.campaign, entry.name)
                most = min(max(1.0, server_share), MOST_TIMES)
            seen: set[str] = set()
            for name in plan.bins:
                planned = replace(plan, bins=[name]).calls(
                    identity.hash if identity else "", ledger.outcomes if ledger else None
                )
                # Without documents, two examples may share a question: count one call.
                calls = [call for call in planned if call.call_key not in seen]
                seen |= {call.call_key for call in calls} if control else set()
                keys = [call.call_key for call in calls]
                paid = {*ledger.outcomes(keys)} if ledger and identity else set()
                if ledger:
                    owners = ledger.claimed(keys).items()
                    waiting = {key for key, owner in owners if owner.startswith(BATCH)}
                    paid |= waiting
                    asked += len(waiting)
                cached = sum(key in paid for key in keys)
                counted_calls = [
                    (call, 1 if call.call_key in paid else _left(plan, call)) for call in calls
                ]
                if ledger:
                    unpaid_keys = [key for key in keys if key not in paid]
                    imported |= ledger.imported(unpaid_keys, plan.study)
                total = sum(times for _, times in counted_calls)
                lines.append(CostLine(entry.name, name, total, cached, control=control))
                _add_up(lines[-1], entry, counted_calls, paid, base_s, token_s, reads, most)
                if (usd := lines[-1].usd) is not None:
                    rest = 1 - entry.batch.discount if entry.batch else None
                    lines[-1].usd_streamed = usd / rest if rest and batched else usd
                    lines[-1].usd_in_batches = rest and lines[-1].usd_streamed * rest
        if any(line.usd for line in lines[before:]):
            notes += price_notes(entry)
        if price_unknown(entry) and any(
            ln.calls > ln.cached + ln.overflow for ln in lines[before:]
        ):
            unknown.append(entry.name)
    if asked:
        notes.append(f"{asked:,} calls wait in batches for their answers.")
    notes += [
        f"{n:,} of the calls to measure have answers that were imported ({origin}) and do not "
        "count as measured; `contextcliff import FILE --adopt` takes them instead."
        for origin, n in sorted(Counter(imported.values()).items())
    ]
    notes += reads.notes()
    return CostEstimate(tuple(lines), pace, tuple(notes), tuple(unknown), batched, asked)


def _add_up(
    line: CostLine,
    entry: ModelEntry,
    calls: Iterable[tuple[PlannedCall, int]],
    paid: Container[str],
    base_s: float,
    token_s: float,
    reads: KvReads,
    most_of_estimate: float,
) -> None:
    """Add the cost of ``calls``, each repeated as given, except those whose keys are in
    ``paid``."""
    usd = usd_at_most = 0.0
    for call, times in calls:
        scaffold = sum(
            map(len, call.recipe.render("", call.example.question, call.replicate).contents())
        )
        tokens = call.length_tokens + math.ceil(scaffold / SCAFFOLD_CHARS_PER_TOKEN)
        out = call.recipe.max_output_tokens
        fits = not entry.window_tokens or tokens + out <= entry.window_tokens
        line.too_long += 0 if fits else times
        if call.call_key in paid:
            continue
        if not fits:
            line.overflow += times
            continue
        line.prompt_tokens += times * tokens
        line.output_tokens += times * out
        new = reads.add(entry, call.example.document_id, call.length_tokens)
        # A measured pace includes documents that had been read before.
        read = tokens if new or not base_s else tokens - call.length_tokens
        line.seconds += times * (base_s + token_s * read) / entry.concurrency
        if entry.price:
            bound = prompt_tokens_estimate(call.length_tokens, 0, scaffold)
            bound = math.ceil(bound * most_of_estimate)
            usd += times * entry.price.cost_usd(tokens, out)
            usd_at_most += times * entry.price.cost_usd(bound, out)
    if entry.price:
        line.usd, line.usd_at_most = usd, usd_at_most


def _left(plan: CallPlan, call: PlannedCall) -> int:
    """Return the number of calls left in a conversation that continues with ``call``."""
    return max(1, plan.steps - len((call.parts or {}).get("after", ())))


def _likely_identity(
    entry: ModelEntry, ledger: Ledger | None, study: str, campaign: str
) -> Identity | None:
    """Return the identity of paid calls: the campaign's, or the entry's own if in process."""
    if ledger and (recorded := recorded_identity(ledger, study, campaign, entry.name)):
        return recorded
    if not entry.spec.in_process:
        return None
    try:
        return Identity(declared_identity(entry))
    except EngineError:
        return None


def _pace(entry: ModelEntry, ledger: Ledger | None) -> tuple[float, float, str]:
    if ledger:
        calls, milliseconds, tokens = ledger.read(
            "SELECT count(*), sum(r.duration_ms), sum(r.prompt_tokens) FROM calls c JOIN "
            "results r USING (call_key)"
            " WHERE c.model = ? AND r.no_answer IS NULL AND r.duration_ms IS NOT NULL",
            (entry.name,),
        )[0]
        if calls >= _HISTORY_CALLS and tokens:
            # PostgreSQL sums whole numbers to a Decimal.
            return 0.0, float(milliseconds) / 1000 / float(tokens), f"{calls} calls so far"
    return entry.spec.call_s, entry.spec.prompt_token_s, "assumed"
