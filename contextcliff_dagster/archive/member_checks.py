"""What head, sample and definition of an archive have to be before anything is taken over."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.container import (
    Allowance,
    damaged,
    json_object,
    malformed,
    parquet_table,
)
from contextcliff_dagster.archive.row_checks import check_texts
from contextcliff_dagster.contracts import (
    DOCUMENTS,
    MANIFEST_EXAMPLES,
    ContextCliffError,
    LengthBin,
)
from contextcliff_dagster.inference.requests.recipe import Recipe
from contextcliff_dagster.sampling.manifest_files import (
    DOCUMENTS_FILE,
    EXAMPLES_FILE,
    HEAD,
    MANIFEST_FILES,
    load_manifest,
)

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.manifest import Manifest

SAMPLE_MEMBERS = (f"manifest/{HEAD}", f"manifest/{DOCUMENTS_FILE}")
"""Missing where a study's experiments make their own documents."""
EXAMPLES_MEMBER = f"manifest/{EXAMPLES_FILE}"
"""Missing in archives of earlier versions, too."""


def check_head(head: Mapping[str, Any]) -> dict[str, Any]:
    """``head`` with study, campaigns and the sample's hash as texts.

    Raises:
        ValueError, LookupError, TypeError: they are missing or something else.
    """
    campaigns, sample = head["campaigns"], head["manifest_sha256"]
    if not isinstance(campaigns, list) or not all(isinstance(name, str) for name in campaigns):
        raise TypeError("campaigns")
    if not isinstance(head["study"], str) or not isinstance(sample, str | None):
        raise TypeError("study")
    if not campaigns or not all(0 < len(name) <= 200 for name in campaigns):
        raise ValueError("campaigns")
    return dict(head)


def sound_sample(
    members: Mapping[str, bytes], sha256: str | None, allowance: Allowance
) -> tuple[Manifest | None, dict[str, str]]:
    """The archive's manifest and its texts by document id, verified outside the store.

    None and nothing where it has no sample.

    Raises:
        StoreError: it is not sound, or not the one that the archive names.
    """
    file, (manifest_name, documents_name) = allowance.file, SAMPLE_MEMBERS
    if sha256 is None and documents_name not in members:
        return None, {}
    schema = DOCUMENTS.arrow_schema()
    table = parquet_table(members[documents_name], documents_name, schema, allowance)
    texts = check_texts(
        file, zip(table["document_id"].to_pylist(), table["text"].to_pylist(), strict=True)
    )
    with malformed(file, manifest_name):
        json_object(members[manifest_name])
    if EXAMPLES_MEMBER in members:
        schema = MANIFEST_EXAMPLES.arrow_schema()
        parquet_table(members[EXAMPLES_MEMBER], EXAMPLES_MEMBER, schema, allowance)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for short in MANIFEST_FILES:
                if (member := f"manifest/{short}") in members:
                    (folder / short).write_bytes(members[member])
            manifest = load_manifest(folder)
    except ContextCliffError as error:
        raise damaged(file, "its sample is not sound") from error
    own = manifest.computed_sha256() if EXAMPLES_MEMBER in members else manifest.sha256
    if not own == manifest.sha256 == sha256:
        raise damaged(file, "its sample is not the one that it names")
    with malformed(file, manifest_name):
        _check_manifest(manifest, texts)
    return manifest, texts


def _check_manifest(manifest: Manifest, texts: Mapping[str, str]) -> None:
    from pydantic import TypeAdapter

    from contextcliff_dagster.corpora.materialize import CorpusSummary, row_example
    from contextcliff_dagster.sampling.length_map import LengthMapSummary

    header, bins = manifest.header, [one.bin for one in manifest.bins]
    for kind, values in (
        (CorpusSummary, [header["corpus"]]),
        (LengthMapSummary, [header["lengths"]]),
        (LengthBin, map(asdict, manifest.bins)),
    ):
        for value in values:
            TypeAdapter(kind).validate_json(json.dumps(asdict(kind(**value))), strict=True)
    rows = manifest.examples.to_pylist()
    for row in rows:
        row_example(row)
        if row["metadata"]:
            json_object(row["metadata"])
    listed = header["corpus"].get("account", {}).get("list") or ""
    sound = (
        Path(listed).name == listed,
        len(set(bins)) == len(bins),
        {row["bin"] for row in rows} <= set(bins),
        {row["document_id"] for row in rows} <= texts.keys(),
        len({row["example_id"] for row in rows}) == len(rows),
        all(row["length_tokens"] >= 0 for row in rows),
    )
    if not all(sound):
        raise ValueError("bins, examples and documents do not fit")


def read_description(data: bytes, file: Path) -> dict[str, Any]:
    """The study as the archive describes it: its keys, prompt texts and recipe.

    Raises:
        StoreError: something is missing, or the recipe is not what its hash says.
    """
    with malformed(file, "study.json"):
        described = json_object(data)
        texts = described["prompt_texts"]
        if not isinstance(described["study"], dict) or not isinstance(texts, dict):
            raise TypeError("study")
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError("prompt_texts")
        try:
            recipe = Recipe.from_dict(described["recipe"])
        except ContextCliffError as error:
            raise ValueError("recipe") from error
        if recipe.hash != described["recipe_hash"]:
            raise ValueError("recipe_hash")
    return described
