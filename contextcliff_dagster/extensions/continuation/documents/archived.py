"""Documents of a study out of a store and into another, where its texts need not be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.archive.container import damaged, malformed
from contextcliff_dagster.archive.kept_documents import KEPT_MEMBERS, KeptList
from contextcliff_dagster.contracts import StoreError, conform
from contextcliff_dagster.experiments.common.lists.document_list import read_list, write_list
from contextcliff_dagster.extensions.continuation.documents.files import (
    HUMAN,
    LISTED,
    documents_dir,
    part_file,
    point_key,
    read_texts,
    write_part,
)
from contextcliff_dagster.extensions.continuation.documents.source_texts import (
    SourceDigests,
    section_of,
)
from contextcliff_dagster.extensions.continuation.tables import CONTINUATION_DOCUMENTS

if TYPE_CHECKING:
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_NUMBER = re.compile(r"\d{1,3}")


def archived(study: Study, store: Store, parts: Mapping[str, Any]) -> KeptList | None:
    """Return the documents in ``store``; None where there is no list with the texts' digests.

    ``parts``: the keys of both dimensions, in the order of the list.
    """
    kept = read_list(documents_dir(store, study.name))
    if kept is None or not kept.sources:
        return None
    rows = [
        row
        for text in parts["document"]
        for part in parts["part"]
        for row in read_texts(part_file(store, study.name, text, part))
    ]
    return KeptList(kept.made_by, kept.sources, rows)


def restore(study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
    """As `KeptDocuments.restore`; a list that the store has already stays as it is."""
    folder, names = documents_dir(store, study.name), section_of(study).text_names
    with malformed(file, KEPT_MEMBERS[0]):
        sources = {name: list(SourceDigests(*map(str, of))) for name, of in kept.sources.items()}
    by_part: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with malformed(file, KEPT_MEMBERS[1]):
        for row in kept.rows:
            by_part.setdefault((row["source"], _part(row)), []).append(dict(row))
    if {text for text, _ in by_part} != set(names) or set(sources) != set(names):
        raise damaged(file, "its documents are not those of its study's texts")
    makers = {}
    for place, rows in by_part.items():
        with malformed(file, KEPT_MEMBERS[1]):
            try:
                conform(rows, CONTINUATION_DOCUMENTS)
            except StoreError as error:
                raise ValueError("columns") from error
            (makers[place],) = {str(row.pop("made_by")) for row in rows}
    if read_list(folder, kept.made_by) is not None:
        return lambda: None
    if read_list(folder) is not None:
        raise StoreError(
            f"{file} holds other documents of study {study.name!r} than {folder}; import it into a "
            "store of its own with --store DIR."
        )
    listed = [{name: row[name] for name in LISTED} for rows in by_part.values() for row in rows]

    def write() -> None:
        for (text, part), rows in by_part.items():
            write_part(part_file(store, study.name, text, part), rows, makers[text, part])
        write_list(folder, kept.made_by, listed, sources)

    return write


def _part(row: Mapping[str, Any]) -> str:
    """The partition of a document; raises ValueError where its passage is no number."""
    if row["kind"] == HUMAN:
        return HUMAN
    number = str(row["passage"]).rpartition("-")[2]
    if not _NUMBER.fullmatch(number):
        raise ValueError("passage")
    return point_key(int(number))
