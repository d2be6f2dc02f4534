"""Metadata of the steps before the first call: corpus, lengths, audit, manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from contextcliff_dagster.corpora.materialize import CorpusSummary
from contextcliff_dagster.defs.ui.rendering import inline, table
from contextcliff_dagster.defs.ui.results import range_of
from contextcliff_dagster.sampling.length_map import LengthMapSummary
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

Metadata = dict[str, Any]

_BLOCKS = " ▁▂▃▄▅▆▇█"


def corpus_metadata(corpus: CorpusSummary) -> Metadata:
    """Return counts and fingerprint, and the outcome of each file if the corpus reports it."""
    shown: Metadata = {
        "dagster/row_count": corpus.examples,
        "documents": corpus.documents,
        "text_bytes": corpus.text_bytes,
        "repeated_rows": corpus.repeated_rows,
        "fingerprint": corpus.fingerprint,
    }
    if corpus.account:
        shown["account"] = dg.MetadataValue.json(dict(corpus.account))
    return shown


def length_metadata(lengths: LengthMapSummary) -> Metadata:
    """Return counts and extreme lengths, in tokens."""
    return {
        "dagster/row_count": lengths.examples,
        "documents": lengths.documents,
        "tokens": lengths.tokens,
        "shortest_tokens": lengths.min_tokens,
        "longest_tokens": lengths.max_tokens,
        "tokenizer": lengths.tokenizer,
        "tokenizer_fingerprint": lengths.tokenizer_fingerprint,
        **({"counted_by": lengths.counted_by} if lengths.counted_by else {}),
    }


def audit_metadata(audit: Mapping[str, Any]) -> Metadata:
    """Return the verdict, an inline histogram, and its bars as a table."""
    bars = list(audit["histogram"])
    most = max((bar["documents"] for bar in bars), default=0) or 1
    blocks = "".join(_BLOCKS[-(-8 * bar["documents"] // most)] for bar in bars)
    ends = f"{audit['min_tokens']:,} to {audit['max_tokens']:,} tokens (log scale)"
    return {
        "advice": inline([str(audit["advice"]), f"`{blocks}` {ends}"]),
        "verdict": str(audit["verdict"]),
        "documents": audit["documents"],
        "examples": audit["examples"],
        "coverage": float(audit["coverage"]),
        "starved_bins": ", ".join(audit["starved_bins"]) or "none",
        "duplicates": audit["duplicates"],
        "over_window": "unknown" if audit["over_window"] is None else audit["over_window"],
        "histogram": table(
            [
                {
                    "from tokens": bar["low"],
                    "below tokens": bar["high"],
                    "documents": bar["documents"],
                    "examples": bar["examples"],
                }
                for bar in bars
            ]
        ),
    }


def manifest_metadata(study: Study, store: Store, manifest: Manifest) -> Metadata:
    """Return the bins and the number of examples drawn from each."""
    rows = [
        {
            "bin": bin.bin,
            "tokens": range_of(manifest.bins, bin.bin),
            "median": bin.median_tokens,
            "examples": bin.n,
            "documents": bin.n_documents,
            "drawn": len(manifest.planned(bin.bin, study.sampling.samples_per_bin)),
            "merged into": bin.merged_into,
        }
        for bin in manifest.bins
    ]
    return {
        "dagster/row_count": manifest.examples.num_rows,
        "sha256": manifest.sha256,
        "seed": study.sampling.seed,
        "bins": table(rows),
        "path": dg.MetadataValue.path(str(store.manifest_dir(study.name))),
    }
