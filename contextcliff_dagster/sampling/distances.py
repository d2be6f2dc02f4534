"""How far apart two pieces of evidence are, in tokens of the study."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.corpora.corpus import EVIDENCE_CHARACTERS

if TYPE_CHECKING:
    import pyarrow as pa

    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer


def count_distances(
    examples: Sequence[dict[str, Any]],
    documents: pa.Table,
    tokenizer: Callable[[], Tokenizer],
) -> None:
    """Fill ``inter_evidence_tokens`` of rows whose metadata says where the evidence begins.

    The tokens of the text from the start of the first piece to the start of the last. A corpus's
    own number stays. ``tokenizer`` is called only where there is something to count.
    """
    spans = [(row, span) for row in examples if (span := _span(row)) is not None]
    if not spans:
        return
    texts = dict(zip(*(documents[c].to_pylist() for c in ("document_id", "text")), strict=True))
    between = [texts[row["document_id"]][first:last] for row, (first, last) in spans]
    counts = tokenizer().count_many(between)
    for (row, _), count in zip(spans, counts, strict=True):
        row["inter_evidence_tokens"] = count


def _span(row: Mapping[str, Any]) -> tuple[int, int] | None:
    if row["inter_evidence_tokens"] is not None or not row["metadata"]:
        return None
    places = json.loads(row["metadata"]).get(EVIDENCE_CHARACTERS)
    # A field of that name in a file of somebody's own may hold anything.
    if not isinstance(places, list) or len(places) < 2:
        return None
    if not all(type(place) is int and place >= 0 for place in places):
        return None
    return min(places), max(places)
