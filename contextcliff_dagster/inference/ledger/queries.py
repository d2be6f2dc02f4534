"""Read-only queries of the call ledger."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.ledger.backend import Backend, Database
from contextcliff_dagster.inference.ledger.schema import (
    ANSWERED,
    COLUMNS,
    checksum,
    either,
    from_row,
    joined,
)
from contextcliff_dagster.inference.requests.call_plan import Failure, MaybePaid, Orphan, Outcome
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, Turn
from contextcliff_dagster.inference.spending import Spend

_MANY = 500  # well below SQLite's limit of parameters in one statement
_CHARGE = "coalesce(a.charged_usd, a.reserved_usd)"
_DIED = "attempts a JOIN failures f USING (attempt_id) WHERE f.maybe_paid = 1"
LEAST_TOLD = 200
"""Shortest prompt in tokens whose count predicts longer ones: in shorter prompts, most tokens are
what a server adds to every prompt."""
UNRECORDED = "not recorded"
"""Origin of an answer from a version that recorded none."""


class LedgerReader:
    """Read-only queries of a ledger. Each raises StoreError if the ledger cannot be read."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.name = backend, backend.name

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.backend.read(sql, parameters)

    def snapshot(self) -> AbstractContextManager[Database]:
        """Open a connection whose queries all see one moment; its writes are dropped."""
        return self.backend.snapshot()

    def _rows_of(self, call_keys: Iterable[str], sql: str, *more: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query with ``IN (?)`` for the call keys, some keys at a time.

        ``more``: parameters after the keys.
        """
        keys = list(dict.fromkeys(call_keys))
        for start in range(0, len(keys), _MANY):
            batch = keys[start : start + _MANY]
            expanded_sql = sql.replace("IN (?)", f"IN ({', '.join('?' * len(batch))})")
            yield from self.read(expanded_sql, [*batch, *more])

    def _answers(
        self, call_keys: Iterable[str], names: str, study: str | None, where: str = "true"
    ) -> Iterator[tuple[Any, ...]]:
        """Columns of answers: of those measured here, and with ``study`` also of those imported
        for it. Measuring reads the former alone: what an archive says was not measured here."""
        if study is None:
            sql = f"SELECT {names} FROM results WHERE call_key IN (?) AND {where}"
            return self._rows_of(call_keys, sql)
        sql = f"SELECT {names} FROM answers WHERE call_key IN (?) AND {where}"
        # Where another study has measured the call, too, the imported answer is last and counts.
        of_study = "AND coalesce(imported_for, ?) = ? ORDER BY imported_for IS NOT NULL"
        return self._rows_of(call_keys, f"{sql} {of_study}", study, study)

    # --- calls by their keys ---------------------------------------------------------------------

    def outcomes(self, call_keys: Iterable[str], study: str | None = None) -> dict[str, Outcome]:
        """Return call key -> outcome for answered calls, including those imported for ``study``.

        Raises:
            StoreError: the ledger cannot be read, or an answer does not match its checksum.
        """
        names = f"call_key, pruned_at, checksum, {', '.join(COLUMNS)}"
        outcomes, altered = {}, 0
        for key, pruned_at, noted, *values in self._answers(call_keys, names, study):
            outcomes[key] = from_row(values)
            whole = dict(zip(COLUMNS, values, strict=True))
            altered += pruned_at is None and noted != checksum(key, whole)
        if altered:
            raise StoreError(
                f"In the call ledger {self.name} {altered:,} of these answers were altered after "
                "they were stored; `contextcliff ledger verify` names them. Restore a backup, "
                "or measure again with `contextcliff campaign new`."
            )
        return outcomes

    def answered(self, call_keys: Iterable[str], study: str | None = None) -> set[str]:
        """Return the calls that have an outcome, including those imported for ``study``."""
        return {row[0] for row in self._answers(call_keys, "call_key", study)}

    def origins(self, call_keys: Iterable[str], study: str | None) -> dict[str, str]:
        """Return call key -> the archive its answer came from, or `UNRECORDED`; leave out the calls
        measured through this ledger."""
        names = f"call_key, coalesce(origin, '{UNRECORDED}')"
        foreign = "(owner IS NULL OR origin IS NOT NULL)"
        return dict(self._answers(call_keys, names, study, foreign))

    def imported(self, call_keys: Iterable[str], study: str) -> dict[str, str]:
        """Return call key -> archive for the answers imported for the study."""
        sql = "SELECT call_key, origin FROM imported_results WHERE call_key IN (?) AND study = ?"
        return dict(self._rows_of(call_keys, sql, study))

    def reads_for(self, study: str, campaign: str, model: str) -> str | None:
        """Return the study whose imported answers are read, or None if it measured the model
        itself, because the two are never mixed."""
        measured = self.read(
            "SELECT 1 FROM calls c JOIN results r USING (call_key) WHERE c.study = ? AND"
            " c.campaign = ? AND c.model = ? AND r.study = c.study AND r.owner IS NOT NULL LIMIT 1",
            (study, campaign, model),
        )
        return None if measured else study

    def failures(self, call_keys: Iterable[str]) -> dict[str, Failure]:
        """Return call key -> last failure; ``attempts`` counts the requests of that run."""
        rows = self._rows_of(
            call_keys,
            "SELECT f.call_key, f.kind, f.message, f.maybe_paid, f.status, f.final, f.at,"
            " (SELECT count(*) FROM attempts b WHERE b.call_key = f.call_key AND b.owner = a.owner)"
            " FROM failures f JOIN attempts a USING (attempt_id) WHERE f.call_key IN (?)"
            " ORDER BY attempt_id",
        )
        return {
            key: Failure(kind, message, bool(maybe_paid), status, bool(final), attempts, at)
            for key, kind, message, maybe_paid, status, final, at, attempts in rows
        }

    def last_failure(self, study: str, campaign: str) -> str | None:
        """Return the message of a campaign's last failed request, or None."""
        rows = self.read(
            "SELECT message FROM failures JOIN attempts USING (attempt_id) WHERE study = ? AND"
            " campaign = ? ORDER BY attempt_id DESC LIMIT 1",
            (study, campaign),
        )
        return str(rows[0][0]) if rows else None

    def claimed(self, call_keys: Iterable[str]) -> dict[str, str]:
        """Return call key -> owner for calls that a process has claimed."""
        sql = "SELECT call_key, owner FROM claims WHERE call_key IN (?)"
        return dict(self._rows_of(call_keys, sql))

    def prompt_hashes(self, call_keys: Iterable[str]) -> dict[str, str]:
        """Return call key -> hash of the rendered prompt."""
        sql = "SELECT call_key, prompt_hash FROM calls WHERE call_key IN (?)"
        return dict(self._rows_of(call_keys, sql))

    def pruned(self, call_keys: Iterable[str], study: str | None = None) -> set[str]:
        """Return the calls whose output was removed, including those imported for ``study``."""
        pruned_times = dict(self._answers(call_keys, "call_key, pruned_at", study))
        return {key for key, pruned_at in pruned_times.items() if pruned_at is not None}

    def maybe_paid(self, call_keys: Iterable[str]) -> MaybePaid:
        """Return the requests of these calls that died after sending, including orphans."""
        keys = set(call_keys)
        sql = f"SELECT {_CHARGE} FROM {_DIED} AND a.call_key IN (?)"
        usd = [charge for (charge,) in self._rows_of(keys, sql)]
        usd += [orphan.reserved_usd for orphan in self.orphans() if orphan.call_key in keys]
        return MaybePaid(len(usd), float(sum(usd)))

    def prompt(self, call_key: str) -> Prompt:
        """Return a call's prompt, rebuilt byte for byte from its parts and checked by its hash.

        Raises:
            StoreError: the call is unknown, its texts were removed, or its parts do not give the
                    prompt that was sent.
        """
        if (rebuilt := self.find_prompt(call_key)) is None:
            raise StoreError(
                f"The texts of call {call_key!r} were removed from the call ledger {self.name}, so "
                "its prompt cannot be rebuilt."
            )
        return rebuilt

    def find_prompt(self, call_key: str) -> Prompt | None:
        """Return the prompt as `prompt` does, or None if its texts were removed."""
        import pyarrow as pa

        rows = self.read(
            "SELECT d.pruned_at, d.zstd, d.bytes, r.body, c.question, c.replicate, c.prompt_hash,"
            " c.parts FROM calls c JOIN documents d USING (document_id) JOIN recipes r USING"
            " (recipe_hash) WHERE c.call_key = ?",
            (call_key,),
        )
        if not rows:
            raise StoreError(
                f"The call ledger {self.name} has no call {call_key!r}; check the key."
            )
        pruned_at, zstd, size, body, question, replicate, prompt_hash, parts = rows[0]
        before = self.turns(parts)
        if pruned_at is not None or before is None:
            return None
        document = pa.Codec("zstd").decompress(zstd, decompressed_size=size, asbytes=True).decode()
        recipe = Recipe.from_dict(json.loads(body))
        render = partial(recipe.render, document, question, replicate)
        rebuilt = as_sent(render, before, prompt_hash)
        if rebuilt is None:
            if not question:  # pruned, and its document came back with a later call
                return None
            raise StoreError(
                f"The call ledger {self.name} cannot rebuild the prompt of call {call_key!r}; "
                "restore a backup."
            )
        return rebuilt

    def turns(self, parts: str | None) -> list[Turn] | None:
        """Return the earlier turns listed in a call's parts, or None if their texts are gone."""
        keys = json.loads(parts).get("after", []) if parts else []
        rows = self._rows_of(
            keys,
            f"SELECT c.call_key, c.question, {either('raw_output')} FROM calls c{joined()} WHERE"
            f" {ANSWERED} AND {either('pruned_at')} IS NULL AND c.call_key"
            " IN (?)",
        )
        by_key = {key: Turn(question, answer or "") for key, question, answer in rows}
        return None if len(by_key) < len(set(keys)) else [by_key[key] for key in keys]

    # --- campaigns -------------------------------------------------------------------------------

    def measured_models(self, study: str, campaign: str) -> list[str]:
        """Return the models with an outcome in the campaign, by name."""
        rows = self.read(
            f"SELECT DISTINCT c.model FROM study_calls c{joined()} WHERE {ANSWERED}"
            " AND c.study = ? AND c.campaign = ? ORDER BY c.model",
            (study, campaign),
        )
        return [row[0] for row in rows]

    def identified_models(self, study: str, campaign: str) -> list[str]:
        """Return the campaign's models with an identity, by name; any study may have paid them."""
        rows = self.read(
            "SELECT model FROM campaign_models WHERE study = ? AND campaign = ? ORDER BY model",
            (study, campaign),
        )
        return [row[0] for row in rows]

    def spent(self, study: str, campaign: str) -> Spend:
        """Return a campaign's spending so far, including reserved and orphaned requests."""
        rows = self.read(
            "SELECT usd, tokens, calls FROM spend WHERE study = ? AND campaign = ?",
            (study, campaign),
        )
        return Spend(*rows[0]) if rows else Spend()

    def most_of_estimate(self, study: str, campaign: str, model: str) -> float:
        """Return the largest ratio of the server's prompt count to our own estimate; 0 if nothing
        was counted."""
        rows = self.read(
            "SELECT max(1.0 * r.prompt_tokens / a.estimated_tokens) FROM results r JOIN attempts a"
            " USING (call_key) WHERE a.study = ? AND a.campaign = ? AND a.model = ?"
            " AND a.estimated_tokens >= ? AND a.owner = r.owner",
            (study, campaign, model, LEAST_TOLD),
        )
        return float(rows[0][0] or 0.0)

    def orphans(
        self, study: str | None = None, campaign: str | None = None, model: str | None = None
    ) -> list[Orphan]:
        """Return the requests whose process died before their answer was stored."""
        owners = self.read("SELECT DISTINCT owner FROM attempts WHERE ended_at IS NULL")
        dead = {owner for (owner,) in owners if not self.backend.is_alive(owner)}
        conditions = {"study": study, "campaign": campaign, "model": model}
        filters = {name: value for name, value in conditions.items() if value is not None}
        rows = self.read(
            "SELECT owner, call_key, study, campaign, model, started_at, reserved_usd FROM attempts"
            f" WHERE {' AND '.join(['ended_at IS NULL', *(f'{name} = ?' for name in filters)])}"
            " ORDER BY attempt_id",
            tuple(filters.values()),
        )
        return [Orphan(*row[1:]) for row in rows if row[0] in dead]

    def stats(self) -> dict[str, Any]:
        """Return row counts, answers by kind, spending, orphans, and the size in bytes."""
        orphans, sizes = self.orphans(), self.backend.sizes()
        tables = ("documents", "calls", "attempts", "failures", "campaigns")
        numbers = {
            **{table: f"count(*) FROM {table}" for table in tables},
            "document_bytes": "coalesce(sum(bytes), 0) FROM documents",
            "answers": "count(*) FROM results WHERE no_answer IS NULL",
            "imported": "count(*) FROM imported_results",
            "context_overflow": "count(*) FROM results WHERE no_answer = 'context_overflow'",
            "invalid_truncated": "count(*) FROM results WHERE no_answer = 'invalid_truncated'",
            "maybe_paid": f"count(*) FROM {_DIED}",
            "maybe_paid_usd": f"coalesce(sum({_CHARGE}), 0.0) FROM {_DIED}",
            "spent_usd": "coalesce(sum(usd), 0.0) FROM spend",
            "spent_tokens": "coalesce(sum(tokens), 0) FROM spend",
            "requests": "coalesce(sum(calls), 0) FROM spend",
        }
        return {
            **{name: self.read(f"SELECT {sql}")[0][0] for name, sql in numbers.items()},
            "orphans": len(orphans),
            "orphans_usd": sum(orphan.reserved_usd for orphan in orphans),
            "bytes": sum(sizes.values()),
            "table_bytes": sizes,
        }

    def stats_by_campaign(self) -> list[dict[str, Any]]:
        """Return a row for each study, campaign and model with calls, answers, requests and money.

        ``maybe_paid``: requests that died after sending, including ``orphans``; ``maybe_paid_usd``
        is their charge, part of ``spent_usd``.
        """

        def sums(sql: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
            return {row[:3]: row[3:] for row in self.read(f"{sql} GROUP BY 1, 2, 3")}

        calls = sums(
            "SELECT c.study, c.campaign, c.model, count(*), count(CASE WHEN"
            f" {either('no_answer')} IS NULL THEN {either('attempts')} END)"
            f" FROM study_calls c{joined()}"
        )
        charged = f"SELECT a.study, a.campaign, a.model, count(*), sum({_CHARGE}) FROM "
        attempts, died = sums(f"{charged} attempts a"), sums(charged + _DIED)
        lost_usd: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
        for orphan in self.orphans():
            lost_usd[orphan.study, orphan.campaign, orphan.model].append(orphan.reserved_usd)
        rows = []
        # A study may have sent only requests for calls that are recorded for another study.
        for key in sorted({*calls, *attempts}):
            number, answers = calls.get(key, (0, 0))
            requests, usd = attempts.get(key, (0, 0.0))
            died_requests, died_usd = died.get(key, (0, 0.0))
            rows.append(
                {
                    **dict(zip(("study", "campaign", "model"), key, strict=True)),
                    "calls": number,
                    "answers": answers,
                    "attempts": requests,
                    "orphans": len(lost_usd[key]),
                    "maybe_paid": died_requests + len(lost_usd[key]),
                    "maybe_paid_usd": died_usd + sum(lost_usd[key]),
                    "spent_usd": usd,
                }
            )
        return rows


def as_sent(
    render: Callable[[Sequence[Turn]], Prompt], before: Sequence[Turn], prompt_hash: str
) -> Prompt | None:
    """Return the prompt with this hash, rendered with the turns before it or, if only its question
    uses them, without; None if neither matches."""
    prompts = map(render, (before, ()))
    return next((prompt for prompt in prompts if prompt.hash == prompt_hash), None)
