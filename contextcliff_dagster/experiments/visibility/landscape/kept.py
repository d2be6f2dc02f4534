"""The landscapes of a study's benchmarks as assets, tabulated before anything is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.kept_documents import KeptDocuments, MadeDocuments
from contextcliff_dagster.experiments.visibility.landscape.grounds import (
    frozen_list,
    ground_named,
    grounds_of,
    row_of,
    section_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.archive.kept_documents import KeptList
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

_ONE = "landscape"


class Landscapes(KeptDocuments):
    """A partition is a benchmark: 128 configurations trained on 20 splits."""

    description = (
        "The scores of 128 configurations of a benchmark on 20 splits: the starts, and what regret "
        "is measured by."
    )

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        return {"benchmark": section_of(study).benchmarks, "table": [_ONE]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        name = partition["benchmark"]
        if name not in section_of(study).benchmarks:
            raise StudyError(
                f"Study {study.name!r} asks for no benchmark {name!r}; see `visibility` in its "
                "file."
            )
        row = row_of(ground_named(name, store))
        return MadeDocuments(row["sha256"], row)

    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        grounds_of(study, store)
        made = self.frozen(study, store)
        assert made is not None
        return made

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        kept = frozen_list(study, store)
        spreads = {row["benchmark"]: row["spread"] for row in kept.documents} if kept else {}
        return MadeDocuments(kept.sha256, spreads) if kept else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        return {"benchmarks": list(section_of(study).benchmarks)}

    def archived(self, study: Study, store: Store) -> KeptList | None:
        from contextcliff_dagster.experiments.visibility.landscape.archived import archived

        return archived(study, store) if self.frozen(study, store) else None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        from contextcliff_dagster.experiments.visibility.landscape.archived import restore

        return restore(study, store, kept, file)


LANDSCAPES = Landscapes()
