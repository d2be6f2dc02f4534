"""The questions of a study over its documents, by cell: what is asked, and with what is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import Example, StoreError
from contextcliff_dagster.extensions.utilization.cells import Cell
from contextcliff_dagster.extensions.utilization.documents.files import read_text, seed_key
from contextcliff_dagster.extensions.utilization.documents.making import arm_json
from contextcliff_dagster.extensions.utilization.prompts import asked
from contextcliff_dagster.sampling.sample_source import PlannedExample

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.extensions.utilization.section import Match

Row = Mapping[str, Any]


class UtilizationSamples:
    """A `SampleSource` over documents (`files.LISTED`) in cells that one recipe asks.

    ``file_of``: document row -> its file in the store, where texts are read from.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        documents: Iterable[Row],
        match: Match,
        files: Mapping[str, Path],
    ) -> None:
        self._cells = {cell.key: cell for cell in cells}
        self._match: Match = match
        self._files = files
        self._planned: dict[str, list[PlannedExample]] = {}
        self._documents: dict[tuple[str, str, str, str], list[Row]] = {}
        for row in documents:
            place = (row["benchmark"], row["format"], row["scale"], row["arm"])
            self._documents.setdefault(place, []).append(row)

    def planned(self, bin: str, n: int) -> Sequence[PlannedExample]:
        """Return the first ``n`` examples of a cell: document by document, the lookup first."""
        if (cell := self._cells.get(bin)) is None:
            return []
        if bin not in self._planned:
            place = (cell.benchmark, cell.format, cell.scale, arm_json(cell.arm.of_document))
            rows = sorted(self._documents.get(place, ()), key=lambda row: int(row["seed"]))
            examples = [one for row in rows for one in self._examples(cell, row)]
            self._planned[bin] = [
                PlannedExample(example, tokens, bin, rank)
                for rank, (example, tokens) in enumerate(examples)
            ]
        return self._planned[bin][:n]

    def document_text(self, document_id: str) -> str:
        """Return a document's text.

        Raises:
            StoreError: the store does not have it.
        """
        if document_id not in self._files:
            raise StoreError(f"There is no document {document_id[:12]}; prepare the study again.")
        return read_text(self._files[document_id], document_id)

    def _examples(self, cell: Cell, row: Row) -> list[tuple[Example, int]]:
        questions = json.loads(row["questions"])
        # A stable sort: engines without a prefix cache of their own profit most from one order.
        questions.sort(key=lambda question: question["kind"] != "lookup")
        key = f"{cell.benchmark}/{cell.scale}/{row['seed']}"
        if self._match == "tokens":
            key += f"/{cell.format}"  # other records: nothing to pair it with
        shared = {
            "benchmark": cell.benchmark,
            "format": cell.format,
            "scale": cell.scale,
            "scale_tokens": cell.tokens,
            "seed": int(row["seed"]),
            "arm": cell.arm_label,
            "document_key": key,
            "records": int(row["records"]),
        }
        return [
            (
                Example(
                    f"{cell.key}-{seed_key(row['seed'])}-q{number}",
                    row["document_id"],
                    asked(question["text"], question["form"], cell.arm.thought),
                    (question["answer"],),
                    question["kind"],
                    {
                        **shared,
                        "needed": question["needed"],
                        "question_kind": question["kind"],
                        "hops": question["hops"],
                        "form": question["form"],
                        "choices": tuple(question["choices"]),
                        "evidence_position": question["evidence_position"],
                    },
                ),
                int(row["length_tokens"]),
            )
            for number, question in enumerate(questions)
        ]
