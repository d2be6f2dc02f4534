"""Verification that a ledger still returns its questions and answers, and that its sums hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.ledger.queries import as_sent
from contextcliff_dagster.inference.ledger.schema import computed_checksums
from contextcliff_dagster.inference.requests.recipe import Recipe

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a check; ``faults`` has the first few of ``fault_count`` faults."""

    prompts: int
    documents: int
    pruned_prompts: int
    fault_count: int
    faults: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def verify(ledger: Ledger, progress: Callable[[int], None] | None = None) -> Verified:
    """Run the database's own check, and rebuild every prompt from document, recipe and question.

    The check requires: each document has its id as SHA-256, each prompt the hash recorded when it
    was sent, each answer its checksum, each request without a failure its answer, and each
    campaign's spending equals the sum of its attempts. Calls with pruned texts are counted
    separately. ``progress`` gets the number of prompts so far, document by document.

    Raises:
        StoreError: the ledger cannot be read at all.
    """
    errors = [*ledger.backend.integrity_errors(), *_sums(ledger)]
    errors += [
        f"the answer to call {call_key[:12]} does not match its checksum"
        for table in ("results", "imported_results")
        for call_key, noted, value in computed_checksums(ledger.read, table=table)
        if value != noted
    ]
    errors += [
        f"the answer to call {call_key[:12]} is missing, though its request has ended"
        for (call_key,) in ledger.read(
            "SELECT DISTINCT call_key FROM attempts WHERE ended_at IS NOT NULL AND attempt_id NOT"
            " IN (SELECT attempt_id FROM failures) AND call_key NOT IN (SELECT call_key FROM"
            " answers) ORDER BY call_key"
        )
    ]
    recipes: dict[str, Recipe] = {}
    for name, body in ledger.read("SELECT recipe_hash, body FROM recipes"):
        recipes[name] = Recipe.from_dict(json.loads(body))
        if recipes[name].hash != name:
            errors.append(f"recipe {name[:12]} does not match its hash")
    documents = [row[0] for row in ledger.read("SELECT document_id FROM documents ORDER BY 1")]
    prompts = pruned = 0
    for document_id in documents:
        calls = ledger.read(
            "SELECT call_key, recipe_hash, question, replicate, prompt_hash, parts FROM calls"
            " WHERE document_id = ? ORDER BY call_key",
            (document_id,),
        )
        text, faults = _text(ledger, document_id)
        errors += faults
        if text is None:
            pruned += 0 if faults else len(calls)
            continue
        for call_key, recipe_hash, question, replicate, prompt_hash, parts in calls:
            before = ledger.turns(parts)
            if before is None:
                pruned += 1
                continue
            render = partial(recipes[recipe_hash].render, text, question, replicate)
            if as_sent(render, before, prompt_hash):
                prompts += 1
            elif not question:  # pruned, and its document came back with a later call
                pruned += 1
            else:
                errors.append(f"the prompt of call {call_key[:12]} cannot be rebuilt")
        if progress:
            progress(prompts)
    return Verified(prompts, len(documents), pruned, len(errors), tuple(errors[:_SHOWN]))


def _text(ledger: Ledger, document_id: str) -> tuple[str | None, list[str]]:
    """Return the document's text; None and a sentence if it is damaged, None alone if pruned."""
    import pyarrow as pa

    zstd, size, pruned_at = ledger.read(
        "SELECT zstd, bytes, pruned_at FROM documents WHERE document_id = ?", (document_id,)
    )[0]
    if pruned_at is not None:
        return None, []
    try:
        data = bytes(pa.Codec("zstd").decompress(zstd, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError):
        data = b""
    if hashlib.sha256(data).hexdigest() != document_id:
        return None, [f"document {document_id[:12]} does not match its hash"]
    return data.decode(), []


def _sums(ledger: Ledger) -> list[str]:
    rows = ledger.read(
        "SELECT s.study, s.campaign, s.usd, s.calls, coalesce(sum(coalesce(a.charged_usd,"
        " a.reserved_usd)), 0.0), count(a.attempt_id) FROM spend s LEFT JOIN attempts a"
        " ON a.study = s.study AND a.campaign = s.campaign"
        " GROUP BY s.study, s.campaign, s.usd, s.calls"
    )
    return [
        f"campaign {campaign} of study {study} has spent ${usd:.6f} in {calls} requests, but its "
        f"attempts add up to ${of_attempts:.6f} in {attempts} requests"
        for study, campaign, usd, calls, of_attempts, attempts in rows
        if calls != attempts or abs(usd - of_attempts) > 1e-6 * max(1.0, abs(usd))
    ]
