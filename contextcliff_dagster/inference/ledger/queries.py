"""Questions to the call ledger; none of them changes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.requests.outcome import Failure, MaybePaid, Orphan, Outcome
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe

if TYPE_CHECKING:
    from contextcliff_dagster.inference.ledger.ledger import Ledger

_MANY = 500  # well below SQLite's limit of parameters in one statement
_OUTCOME_COLUMNS = [column.name for column in fields(Outcome)]


def _chunks(call_keys: Iterable[str]) -> Iterator[list[str]]:
    keys = list(dict.fromkeys(call_keys))
    for start in range(0, len(keys), _MANY):
        yield keys[start : start + _MANY]


def outcomes(ledger: Ledger, call_keys: Iterable[str]) -> dict[str, Outcome]:
    """Call key -> outcome, of those that have one."""
    found: dict[str, Outcome] = {}
    for keys in _chunks(call_keys):
        columns = ", ".join(_OUTCOME_COLUMNS)
        sql = f"SELECT call_key, {columns} FROM results WHERE call_key IN ({_marks(keys)})"
        found.update((row[0], Outcome(*row[1:])) for row in ledger.read(sql, keys))
    return found


def failures(ledger: Ledger, call_keys: Iterable[str]) -> dict[str, Failure]:
    """Call key -> last failure; its ``attempts`` are the requests of the run that failed last."""
    found: dict[str, Failure] = {}
    for keys in _chunks(call_keys):
        rows = ledger.read(
            "SELECT f.call_key, f.kind, f.message, f.maybe_paid, f.status, f.final, f.at,"
            " (SELECT count(*) FROM attempts b WHERE b.call_key = f.call_key AND b.owner = a.owner)"
            " FROM failures f JOIN attempts a USING (attempt_id) WHERE f.call_key IN "
            f"({_marks(keys)}) ORDER BY attempt_id",
            keys,
        )
        for key, kind, message, maybe_paid, status, final, at, attempts in rows:
            found[key] = Failure(kind, message, bool(maybe_paid), status, bool(final), attempts, at)
    return found


def claimed(ledger: Ledger, call_keys: Iterable[str]) -> dict[str, str]:
    """Call key -> owner, of those that somebody is at."""
    found: dict[str, str] = {}
    for keys in _chunks(call_keys):
        found.update(
            ledger.read(
                f"SELECT call_key, owner FROM claims WHERE call_key IN ({_marks(keys)})", keys
            )
        )
    return found


def measured_models(ledger: Ledger, study: str, campaign: str) -> list[str]:
    """Models that have an outcome in the campaign, by name."""
    rows = ledger.read(
        "SELECT DISTINCT c.model FROM calls c JOIN results r USING (call_key)"
        " WHERE c.study = ? AND c.campaign = ? ORDER BY c.model",
        (study, campaign),
    )
    return [str(row[0]) for row in rows]


def prompts(ledger: Ledger, call_keys: Iterable[str]) -> dict[str, str]:
    """Call key -> hash of the prompt that was rendered for it."""
    found: dict[str, str] = {}
    for keys in _chunks(call_keys):
        rows = ledger.read(
            f"SELECT call_key, prompt_hash FROM calls WHERE call_key IN ({_marks(keys)})", keys
        )
        found.update((key, prompt_hash) for key, prompt_hash in rows)
    return found


def pruned(ledger: Ledger, call_keys: Iterable[str]) -> set[str]:
    """Those of the calls whose output was removed."""
    found: set[str] = set()
    for keys in _chunks(call_keys):
        rows = ledger.read(
            f"SELECT call_key FROM results WHERE pruned_at IS NOT NULL AND call_key IN"
            f" ({_marks(keys)})",
            keys,
        )
        found.update(row[0] for row in rows)
    return found


def orphans(
    ledger: Ledger,
    alive: Mapping[str, bool],
    study: str | None,
    campaign: str | None,
    model: str | None,
) -> list[Orphan]:
    """Open attempts of owners that are gone."""
    asked = {"study": study, "campaign": campaign, "model": model}
    given = {name: value for name, value in asked.items() if value is not None}
    rows = ledger.read(
        "SELECT owner, call_key, study, campaign, model, started_at, reserved_usd FROM attempts"
        f" WHERE {' AND '.join(['ended_at IS NULL', *(f'{name} = ?' for name in given)])}"
        " ORDER BY attempt_id",
        tuple(given.values()),
    )
    return [Orphan(*row[1:]) for row in rows if not alive.get(row[0], True)]


def maybe_paid(ledger: Ledger, call_keys: Iterable[str]) -> MaybePaid:
    """Failed requests of these calls that the model may have worked for, and their charge."""
    requests, usd = 0, 0.0
    for keys in _chunks(call_keys):
        found = ledger.read(
            "SELECT count(*), sum(coalesce(a.charged_usd, a.reserved_usd)) FROM attempts a"
            " JOIN failures f USING (attempt_id) WHERE f.maybe_paid = 1 AND a.call_key IN"
            f" ({_marks(keys)})",
            keys,
        )
        requests, usd = requests + int(found[0][0]), usd + float(found[0][1] or 0.0)
    return MaybePaid(requests, usd)


def prompt(ledger: Ledger, call_key: str) -> Prompt:
    """The prompt of a call, rebuilt from document, recipe and question, and checked by its hash."""
    import pyarrow as pa

    rows = ledger.read(
        "SELECT d.pruned_at, d.zstd, d.bytes, r.body, c.question, c.replicate, c.prompt_hash"
        " FROM calls c"
        " JOIN documents d USING (document_id) JOIN recipes r USING (recipe_hash) WHERE "
        "c.call_key = ?",
        (call_key,),
    )
    if not rows:
        raise StoreError(
            f"The call ledger {ledger.name} knows no call {call_key!r}; check the key."
        )
    pruned_at, zstd, size, body, question, replicate, prompt_hash = rows[0]
    gone = StoreError(
        f"The texts of call {call_key!r} were removed from the call ledger {ledger.name}, so its "
        "prompt cannot be rebuilt."
    )
    if pruned_at is not None:
        raise gone
    document = pa.Codec("zstd").decompress(zstd, decompressed_size=size, asbytes=True).decode()
    rebuilt = Recipe.from_dict(json.loads(body)).render(document, question, replicate)
    if rebuilt.hash != prompt_hash:
        if not question:  # pruned, and its document came back with a later call
            raise gone
        raise StoreError(
            f"The call ledger {ledger.name} does not give back the prompt of call {call_key!r}; "
            "restore a backup."
        )
    return rebuilt


def stats(ledger: Ledger, orphaned: Sequence[Orphan]) -> dict[str, Any]:
    """Row counts, answers by kind, spend and size in bytes."""

    def count(sql: str) -> int:
        return int(ledger.read(sql)[0][0] or 0)

    usd, tokens, requests = ledger.read("SELECT sum(usd), sum(tokens), sum(calls) FROM spend")[0]
    died, died_usd = ledger.read(
        "SELECT count(*), sum(coalesce(a.charged_usd, a.reserved_usd)) FROM failures f"
        " JOIN attempts a USING (attempt_id) WHERE f.maybe_paid = 1"
    )[0]
    sizes = ledger.backend.sizes()
    return {
        "documents": count("SELECT count(*) FROM documents"),
        "document_bytes": count("SELECT sum(bytes) FROM documents"),
        "calls": count("SELECT count(*) FROM calls"),
        "answers": count("SELECT count(*) FROM results WHERE no_answer IS NULL"),
        "context_overflow": count(
            "SELECT count(*) FROM results WHERE no_answer = 'context_overflow'"
        ),
        "invalid_truncated": count(
            "SELECT count(*) FROM results WHERE no_answer = 'invalid_truncated'"
        ),
        "attempts": count("SELECT count(*) FROM attempts"),
        "failures": count("SELECT count(*) FROM failures"),
        "maybe_paid": int(died),
        "maybe_paid_usd": float(died_usd or 0),
        "orphans": len(orphaned),
        "orphans_usd": sum(orphan.reserved_usd for orphan in orphaned),
        "campaigns": count("SELECT count(*) FROM campaigns"),
        "spent_usd": float(usd or 0),
        "spent_tokens": int(tokens or 0),
        "requests": int(requests or 0),
        "bytes": sum(sizes.values()),
        "table_bytes": sizes,
    }


def stats_by_campaign(ledger: Ledger, orphaned: Iterable[Orphan]) -> list[dict[str, Any]]:
    """A row for each study, campaign and model: calls, answers, requests and money.

    ``maybe_paid``: requests that died after they were sent, the ``orphans`` among them;
    ``maybe_paid_usd`` is what of ``spent_usd`` they were charged with.
    """
    from collections import Counter, defaultdict

    calls = {
        tuple(row[:3]): row[3:]
        for row in ledger.read(
            "SELECT c.study, c.campaign, c.model, count(*), count(r.call_key) FROM calls c LEFT"
            " JOIN results r ON r.call_key = c.call_key AND r.no_answer IS NULL GROUP BY 1, 2, 3"
        )
    }
    attempts = {
        tuple(row[:3]): row[3:]
        for row in ledger.read(
            "SELECT study, campaign, model, count(*),"
            " sum(coalesce(charged_usd, reserved_usd)) FROM attempts GROUP BY 1, 2, 3"
        )
    }
    died = {
        tuple(row[:3]): row[3:]
        for row in ledger.read(
            "SELECT a.study, a.campaign, a.model, count(*),"
            " sum(coalesce(a.charged_usd, a.reserved_usd)) FROM attempts a"
            " JOIN failures f USING (attempt_id) WHERE f.maybe_paid = 1 GROUP BY 1, 2, 3"
        )
    }
    lost: Counter[tuple[str, ...]] = Counter()
    lost_usd: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for orphan in orphaned:
        whose = (orphan.study, orphan.campaign, orphan.model)
        lost[whose] += 1
        lost_usd[whose] += orphan.reserved_usd
    rows = []
    # A study may have sent nothing but requests for calls that are noted as another one's.
    for key in sorted({*calls, *attempts}):
        number, answers = calls.get(key, (0, 0))
        requests, usd = attempts.get(key, (0, 0.0))
        died_requests, died_usd = died.get(key, (0, 0.0))
        rows.append(
            {
                **dict(zip(("study", "campaign", "model"), key, strict=True)),
                "calls": int(number),
                "answers": int(answers),
                "attempts": int(requests),
                "orphans": lost[key],
                "maybe_paid": int(died_requests) + lost[key],
                "maybe_paid_usd": float(died_usd or 0.0) + lost_usd[key],
                "spent_usd": float(usd or 0.0),
            }
        )
    return rows


def _marks(keys: list[str]) -> str:
    return ", ".join("?" * len(keys))
