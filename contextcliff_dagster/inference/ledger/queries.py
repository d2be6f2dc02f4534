"""Questions to the call ledger; none of them changes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import Backend, Reader
from contextcliff_dagster.inference.ledger.result_rows import COLUMNS, from_row
from contextcliff_dagster.inference.requests.outcome import Failure, MaybePaid, Orphan, Outcome
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, Turn

_MANY = 500  # well below SQLite's limit of parameters in one statement


def _chunks(call_keys: Iterable[str]) -> Iterator[list[str]]:
    keys = list(dict.fromkeys(call_keys))
    for start in range(0, len(keys), _MANY):
        yield keys[start : start + _MANY]


def outcomes(reader: Reader, call_keys: Iterable[str]) -> dict[str, Outcome]:
    """Call key -> outcome, of those that have one."""
    by_key: dict[str, Outcome] = {}
    for keys in _chunks(call_keys):
        sql = (
            f"SELECT call_key, {', '.join(COLUMNS)} FROM results WHERE call_key IN ({_marks(keys)})"
        )
        by_key.update((row[0], from_row(row[1:])) for row in reader.read(sql, keys))
    return by_key


def failures(reader: Reader, call_keys: Iterable[str]) -> dict[str, Failure]:
    """Call key -> last failure; its ``attempts`` are the requests of the run that failed last."""
    by_key: dict[str, Failure] = {}
    for keys in _chunks(call_keys):
        rows = reader.read(
            "SELECT f.call_key, f.kind, f.message, f.maybe_paid, f.status, f.final, f.at,"
            " (SELECT count(*) FROM attempts b WHERE b.call_key = f.call_key AND b.owner = a.owner)"
            " FROM failures f JOIN attempts a USING (attempt_id) WHERE f.call_key IN "
            f"({_marks(keys)}) ORDER BY attempt_id",
            keys,
        )
        for key, kind, message, maybe_paid, status, final, at, attempts in rows:
            by_key[key] = Failure(
                kind, message, bool(maybe_paid), status, bool(final), attempts, at
            )
    return by_key


def claimed(reader: Reader, call_keys: Iterable[str]) -> dict[str, str]:
    """Call key -> owner, of those that somebody is at."""
    by_key: dict[str, str] = {}
    for keys in _chunks(call_keys):
        by_key.update(
            reader.read(
                f"SELECT call_key, owner FROM claims WHERE call_key IN ({_marks(keys)})", keys
            )
        )
    return by_key


def measured_models(reader: Reader, study: str, campaign: str) -> list[str]:
    """Models that have an outcome in the campaign, by name."""
    rows = reader.read(
        "SELECT DISTINCT c.model FROM calls c JOIN results r USING (call_key)"
        " WHERE c.study = ? AND c.campaign = ? ORDER BY c.model",
        (study, campaign),
    )
    return [str(row[0]) for row in rows]


def identified_models(reader: Reader, study: str, campaign: str) -> list[str]:
    """Models that have a serving identity in the campaign, by name; any study may have paid their
    answers."""
    rows = reader.read(
        "SELECT model FROM campaign_models WHERE study = ? AND campaign = ? ORDER BY model",
        (study, campaign),
    )
    return [str(row[0]) for row in rows]


def prompts(reader: Reader, call_keys: Iterable[str]) -> dict[str, str]:
    """Call key -> hash of the prompt that was rendered for it."""
    hashes: dict[str, str] = {}
    for keys in _chunks(call_keys):
        rows = reader.read(
            f"SELECT call_key, prompt_hash FROM calls WHERE call_key IN ({_marks(keys)})", keys
        )
        hashes.update((key, prompt_hash) for key, prompt_hash in rows)
    return hashes


def pruned(reader: Reader, call_keys: Iterable[str]) -> set[str]:
    """Those of the calls whose output was removed."""
    gone: set[str] = set()
    for keys in _chunks(call_keys):
        rows = reader.read(
            f"SELECT call_key FROM results WHERE pruned_at IS NOT NULL AND call_key IN"
            f" ({_marks(keys)})",
            keys,
        )
        gone.update(row[0] for row in rows)
    return gone


def orphans(
    reader: Reader,
    alive: Mapping[str, bool],
    study: str | None,
    campaign: str | None,
    model: str | None,
) -> list[Orphan]:
    """Open attempts of owners that are gone."""
    wanted = {"study": study, "campaign": campaign, "model": model}
    given = {name: value for name, value in wanted.items() if value is not None}
    rows = reader.read(
        "SELECT owner, call_key, study, campaign, model, started_at, reserved_usd FROM attempts"
        f" WHERE {' AND '.join(['ended_at IS NULL', *(f'{name} = ?' for name in given)])}"
        " ORDER BY attempt_id",
        tuple(given.values()),
    )
    return [Orphan(*row[1:]) for row in rows if not alive.get(row[0], True)]


def maybe_paid(reader: Reader, call_keys: Iterable[str]) -> MaybePaid:
    """Failed requests of these calls that the model may have worked for, and their charge."""
    requests, usd = 0, 0.0
    for keys in _chunks(call_keys):
        rows = reader.read(
            "SELECT count(*), sum(coalesce(a.charged_usd, a.reserved_usd)) FROM attempts a"
            " JOIN failures f USING (attempt_id) WHERE f.maybe_paid = 1 AND a.call_key IN"
            f" ({_marks(keys)})",
            keys,
        )
        requests, usd = requests + int(rows[0][0]), usd + float(rows[0][1] or 0.0)
    return MaybePaid(requests, usd)


def prompt(reader: Reader, call_key: str) -> Prompt:
    """The prompt of a call, rebuilt from its parts and checked by its hash."""
    import pyarrow as pa

    rows = reader.read(
        "SELECT d.pruned_at, d.zstd, d.bytes, r.body, c.question, c.replicate, c.prompt_hash,"
        " c.parts FROM calls c"
        " JOIN documents d USING (document_id) JOIN recipes r USING (recipe_hash) WHERE "
        "c.call_key = ?",
        (call_key,),
    )
    if not rows:
        raise StoreError(
            f"The call ledger {reader.name} knows no call {call_key!r}; check the key."
        )
    pruned_at, zstd, size, body, question, replicate, prompt_hash, parts = rows[0]
    gone = StoreError(
        f"The texts of call {call_key!r} were removed from the call ledger {reader.name}, so its "
        "prompt cannot be rebuilt."
    )
    before = turns(reader, parts)
    if pruned_at is not None or before is None:
        raise gone
    document = pa.Codec("zstd").decompress(zstd, decompressed_size=size, asbytes=True).decode()
    rebuilt = Recipe.from_dict(json.loads(body)).render(document, question, replicate, before)
    if rebuilt.hash != prompt_hash:
        if not question:  # pruned, and its document came back with a later call
            raise gone
        raise StoreError(
            f"The call ledger {reader.name} does not give back the prompt of call {call_key!r}; "
            "restore a backup."
        )
    return rebuilt


def turns(reader: Reader, parts: str | None) -> list[Turn] | None:
    """The earlier turns that the parts of a call name; None where their texts are gone."""
    keys = json.loads(parts).get("after", []) if parts else []
    by_key: dict[str, Turn] = {}
    for some in _chunks(keys):
        rows = reader.read(
            "SELECT c.call_key, c.question, r.raw_output FROM calls c JOIN results r"
            f" USING (call_key) WHERE r.pruned_at IS NULL AND c.call_key IN ({_marks(some)})",
            some,
        )
        by_key.update((key, Turn(question, answer or "")) for key, question, answer in rows)
    return None if len(by_key) < len(set(keys)) else [by_key[key] for key in keys]


def stats(backend: Backend, orphaned: Sequence[Orphan]) -> dict[str, Any]:
    """Row counts, answers by kind, spend and size in bytes."""

    def count(sql: str) -> int:
        return int(backend.read(sql)[0][0] or 0)

    usd, tokens, requests = backend.read("SELECT sum(usd), sum(tokens), sum(calls) FROM spend")[0]
    died, died_usd = backend.read(
        "SELECT count(*), sum(coalesce(a.charged_usd, a.reserved_usd)) FROM failures f"
        " JOIN attempts a USING (attempt_id) WHERE f.maybe_paid = 1"
    )[0]
    sizes = backend.sizes()
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


def stats_by_campaign(reader: Reader, orphaned: Iterable[Orphan]) -> list[dict[str, Any]]:
    """A row for each study, campaign and model: calls, answers, requests and money.

    ``maybe_paid``: requests that died after they were sent, the ``orphans`` among them;
    ``maybe_paid_usd`` is what of ``spent_usd`` they were charged with.
    """
    from collections import Counter, defaultdict

    calls = {
        tuple(row[:3]): row[3:]
        for row in reader.read(
            "SELECT c.study, c.campaign, c.model, count(*), count(r.call_key) FROM calls c LEFT"
            " JOIN results r ON r.call_key = c.call_key AND r.no_answer IS NULL GROUP BY 1, 2, 3"
        )
    }
    attempts = {
        tuple(row[:3]): row[3:]
        for row in reader.read(
            "SELECT study, campaign, model, count(*),"
            " sum(coalesce(charged_usd, reserved_usd)) FROM attempts GROUP BY 1, 2, 3"
        )
    }
    died = {
        tuple(row[:3]): row[3:]
        for row in reader.read(
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
