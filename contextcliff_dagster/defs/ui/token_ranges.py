"""The token ranges behind the partition keys of bins, which stay `b00`, `b01`, ... for good."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dagster as dg

from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.defs.ui.rendering import table
from contextcliff_dagster.sampling.manifest_files import HEAD
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

DIMENSION = "tokens"
"""Of partitions that are length bins."""
_MOST_BYTES = 1 << 20
"""A larger file is a manifest of an earlier version, which would be slow to read at each load."""


def range_of(bins: Iterable[LengthBin], key: str) -> str:
    """Return the tokens of a document in the bin ``key``, as ``1,024 to 2,047 tokens``."""
    known = list(bins)
    for number, one in enumerate(known):
        if one.bin == key:
            last = number == len(known) - 1  # the last one is closed above
            return f"{one.edge_low:,} to {one.edge_high - (0 if last else 1):,} tokens"
    return "unknown"


def with_token_ranges(
    assets: Sequence[dg.AssetsDefinition], study: Study, store: Store
) -> list[dg.AssetsDefinition]:
    """Return ``assets``, those partitioned by bins with the range of each key.

    The ranges are those of the sample that was frozen when the code location was loaded.
    """
    bins = _frozen_bins(study, store)

    def shown(spec: dg.AssetSpec) -> dg.AssetSpec:
        if not bins:
            text = "The token range of each key is known once `manifest` is made and this reloaded."
            return spec.replace_attributes(description=f"{spec.description}\n\n{text}")
        ranges = [{"key": one.bin, "tokens": range_of(bins, one.bin)} for one in bins]
        lines = "\n".join(f"- `{row['key']}`: {row['tokens']}" for row in ranges)
        return spec.replace_attributes(
            description=f"{spec.description}\n\n{lines}",
            metadata={**spec.metadata, "token_ranges": table(ranges)},
        )

    return [one.map_asset_specs(shown) if _by_bins(one) else one for one in assets]


def _by_bins(asset: dg.AssetsDefinition) -> bool:
    partitions = asset.partitions_def
    return (
        isinstance(partitions, dg.MultiPartitionsDefinition)
        and DIMENSION in partitions.partition_dimension_names
    )


def _frozen_bins(study: Study, store: Store) -> list[LengthBin]:
    """Those of the manifest of this very specification; none where there is none to read."""
    spec_hash, bins = bins_of(store.manifest_dir(study.name) / HEAD)
    return bins if spec_hash == study.manifest_spec_hash() else []


def bins_of(head_file: Path) -> tuple[str, list[LengthBin]]:
    """Specification and bins in a ``manifest.json``; none where it cannot be read, or is large."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if head_file.stat().st_size <= _MOST_BYTES:
            head: dict[str, Any] = json.loads(head_file.read_bytes())
            return str(head["header"]["spec_hash"]), [LengthBin(**one) for one in head["bins"]]
    return "", []
