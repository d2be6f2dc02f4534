"""Several corpora as one: short documents of one for the short bins, long ones of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import Entry, StreamedCorpus, options_hash, take_options

PARTS = "parts"


class MixedCorpus(StreamedCorpus):
    """The entries of its parts, one part after the other; every text as its part gives it.

    Options: ``parts``, a list of corpora, each with its ``kind``, that kind's own options, and a
    ``name`` where two are of one kind. The name is the ``source`` of every example, by which the
    mix of each bin is shown and the curve compared at an equal mix; a source that the part itself
    knows stays as ``source_in_part``. Ids that a part gives are preceded by its name.
    """

    name = "mixed"

    def __init__(
        self,
        options: Mapping[str, Any],
        open_part: Callable[[str, Mapping[str, Any]], StreamedCorpus],
    ) -> None:
        parts = take_options(self.name, options, {PARTS: list}).get(PARTS) or []
        if len(parts) < 2:
            raise CorpusError(
                "A corpus of kind 'mixed' needs the option 'parts', a list of two or more corpora: "
                "each with its kind and that kind's options."
            )
        self._parts: dict[str, StreamedCorpus] = {}
        for number, part in enumerate(parts, start=1):
            name, kind, own = _taken(part, number)
            if name in self._parts:
                raise CorpusError(
                    f"Two parts of the corpus are named {name!r}; give each a 'name' of its own."
                )
            try:
                self._parts[name] = open_part(kind, own)
            except CorpusError as error:
                raise CorpusError(f"Part {name!r} of the corpus: {error}") from error

    def fingerprint(self) -> str:
        content = [part.fingerprint() for part in self._parts.values()]
        return options_hash(self.name, {PARTS: list(self._parts)}, *content)

    def entries(self) -> Iterator[Entry]:
        """
        Raises:
            CorpusError: a part cannot be read; its name is in the sentence.
        """
        for name, part in self._parts.items():
            try:
                for entry in part.entries():
                    yield _of_part(name, entry)
            except CorpusError as error:
                raise CorpusError(f"Part {name!r} of the corpus: {error}") from error

    def account(self) -> Mapping[str, Any]:
        """The parts' accounts under their names, with one summary and all their cautions."""
        accounts = {name: dict(part.account()) for name, part in self._parts.items()}
        known = {name: one for name, one in accounts.items() if one}
        whole: dict[str, Any] = {
            PARTS: accounts,
            "summary": " ".join(f"{name}: {one['summary']}" for name, one in known.items()),
            "cautions": [
                f"{name}: {caution}"
                for name, one in known.items()
                for caution in one.get("cautions", ())
            ],
            "manufactured": {
                f"{name}: {task}": how
                for name, one in known.items()
                for task, how in one.get("manufactured", {}).items()
            },
            "list": next((one["list"] for one in known.values() if "list" in one), ""),
        }
        return {key: value for key, value in whole.items() if value}

    def file_list(self) -> Sequence[Mapping[str, Any]]:
        """The parts' lists, each row with its part."""
        rows = [
            {"part": name, **row} for name, part in self._parts.items() for row in part.file_list()
        ]
        columns = dict.fromkeys(column for row in rows for column in row)
        return [{column: row.get(column, "") for column in columns} for row in rows]


def _taken(part: Any, number: int) -> tuple[str, str, dict[str, Any]]:
    """Name, kind and options of a part."""
    if not isinstance(part, Mapping) or not isinstance(part.get("kind"), str):
        raise CorpusError(
            f"Part {number} of the corpus needs a 'kind', and that kind's options next to it, not "
            f"{part!r}."
        )
    own = {key: value for key, value in part.items() if key not in ("kind", "name")}
    kind, name = part["kind"], part.get("name", part["kind"])
    if kind == MixedCorpus.name:
        raise CorpusError(
            f"Part {number} of the corpus is of kind 'mixed' itself; name its parts here instead."
        )
    if not isinstance(name, str) or not name.strip():
        raise CorpusError(f"Part {number} of the corpus needs text as its 'name', not {name!r}.")
    return name.strip(), kind, own


def _of_part(name: str, entry: Entry) -> Entry:
    example = entry.example
    metadata = {**example.metadata, "source": name}
    if (own := example.metadata.get("source")) not in (None, name):
        metadata["source_in_part"] = own
    identity = f"{name}/{example.example_id}" if entry.id_given else example.example_id
    return entry._replace(
        example=replace(example, example_id=identity, metadata=metadata),
        place=f"{name}: {entry.place}",
    )
