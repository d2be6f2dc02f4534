"""Which contexts and passages a study asks for, and their way into the store."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.kept_documents import (
    KeptDocuments,
    MadeDocuments,
    tokenizer_name,
    tokenizer_of,
)
from contextcliff_dagster.experiments.common.lists.document_list import (
    DocumentList,
    read_list,
    write_list,
)
from contextcliff_dagster.extensions.continuation.documents import files
from contextcliff_dagster.extensions.continuation.documents.source_texts import (
    SourceDigests,
    read_source,
    section_of,
    source_digests,
)
from contextcliff_dagster.extensions.continuation.prompts import TEMPLATE_TOKENS, instruction_of
from contextcliff_dagster.step_progress import report_step

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.archive.kept_documents import KeptList
    from contextcliff_dagster.extensions.continuation.documents.making import Plan
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study


class ContinuationDocuments(KeptDocuments):
    """Documents of the experiment: a partition is a text, and a point or its human passages."""

    description = (
        "Of each text: a point's contexts at every size with what the author wrote after it (p000, "
        "p001, ...), and other passages of the author, which show how far human prose varies "
        "(human)."
    )

    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        section = section_of(study)
        points = [files.point_key(number) for number in range(section.passages)]
        human = [] if section.compat else [files.HUMAN]
        return {"document": section.text_names, "part": [*human, *points]}

    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        keys = self.keys(study)
        text, part = partition["document"], partition["part"]
        if text not in keys["document"] or part not in keys["part"]:
            raise StudyError(
                f"Study {study.name!r} asks for no documents {text}, {part}; see `continuation` in "
                "its file."
            )
        rows = _ensure_part(study, store, keys["document"].index(text), part)
        ids = json.dumps([row["document_id"] for row in rows])
        return MadeDocuments(hashlib.sha256(ids.encode()).hexdigest(), files.summary(rows))

    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        from contextcliff_dagster.extensions.continuation.documents.making import (
            require_noise_floor,
        )

        if self.frozen(study, store) is None:
            keys = self.keys(study)
            parts = [(n, part) for n in range(len(keys["document"])) for part in keys["part"]]
            rows = []
            for done, (number, part) in enumerate(parts):
                report_step("passages", done, len(parts))
                rows += _ensure_part(study, store, number, part)
            report_step("passages", len(parts), len(parts))
            human = Counter(row["source"] for row in rows if row["kind"] == "human")
            if not section_of(study).compat:
                counts = {text: human[text] for text in keys["document"]}
                require_noise_floor(counts, plan_of(study).words)
            store.mark()
            folder = files.documents_dir(store, study.name)
            sources = {name: list(one) for name, one in _digests(study, store).items()}
            write_list(folder, _spec_hash(study, store), rows, sources)
        made = self.frozen(study, store)
        assert made is not None
        return made

    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        kept = _list(study, store)
        keys = self.keys(study)
        there = kept is not None and all(
            files.part_file(store, study.name, text, part).exists()
            for text in keys["document"]
            for part in keys["part"]
        )
        return MadeDocuments(kept.sha256, files.summary(kept.documents)) if kept and there else None

    def depends_on(self, study: Study) -> Mapping[str, Any]:
        section = section_of(study)
        asked = section.model_dump(mode="json", include={"texts", "max_tokens", "passages", "seed"})
        plan = plan_of(study)
        return {
            **asked,
            "sizes": list(plan.sizes),
            "reserved": plan.reserved,
            "tokenizer": tokenizer_name(study, "continuation"),
            **({"compat": section.compat} if section.compat else {}),
        }

    def archived(self, study: Study, store: Store) -> KeptList | None:
        from contextcliff_dagster.extensions.continuation.documents.archived import archived

        return archived(study, store, self.keys(study)) if self.frozen(study, store) else None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        from contextcliff_dagster.extensions.continuation.documents.archived import restore

        return restore(study, store, kept, file)


DOCUMENTS = ContinuationDocuments()


def plan_of(study: Study) -> Plan:
    """Return what is made of each text.

    Raises:
        StudyError: the tokenizer cannot be opened, or the smallest window holds no context.
    """
    from contextcliff_dagster.extensions.continuation.documents.making import Plan

    section = section_of(study)
    asked = tokenizer_of(study, "continuation").count(instruction_of(section))
    reserved = section.max_tokens + asked + TEMPLATE_TOKENS
    if section.sizes[0] - reserved < section.max_tokens // 2:
        raise StudyError(
            f"Study {study.name!r}: the smallest window, {section.sizes[0]:,} tokens, leaves "
            f"{max(0, section.sizes[0] - reserved):,} for the context, after "
            f"{section.max_tokens:,} for the continuation and {asked + TEMPLATE_TOKENS:,} for the "
            "instruction; raise "
            "`continuation.start_context` or lower `continuation.max_tokens`."
        )
    return Plan(section.sizes, reserved, section.max_tokens, section.passages, section.seed)


def listed(study: Study, store: Store) -> list[dict[str, Any]]:
    """Return the documents of a study (`files.LISTED`), made where they are missing."""
    DOCUMENTS.freeze(study, store)
    kept = _list(study, store)
    assert kept is not None
    return kept.documents


def passages(study: Study, store: Store) -> Iterator[dict[str, Any]]:
    """Yield the author's and the human passages of a study with their texts, text by text.

    Raises:
        StudyError, StoreError: they cannot be made, kept or read.
    """
    DOCUMENTS.freeze(study, store)
    keys = DOCUMENTS.keys(study)
    for text in keys["document"]:
        for part in keys["part"]:
            for row in files.read_texts(files.part_file(store, study.name, text, part)):
                if row["kind"] != "context":
                    yield row


def require_texts(study: Study) -> None:
    """Return if the texts can be read and are long enough; nothing is made.

    Raises:
        StudyError: a text cannot be read, or is too short; all together are.
    """
    from contextcliff_dagster.extensions.continuation.documents.making import (
        human_places,
        require_noise_floor,
    )

    texts = [read_source(study, number) for number in range(len(section_of(study).texts))]
    if not section_of(study).compat:
        plan = plan_of(study)
        counts = {text.name: len(human_places(plan, text)) for text in texts}
        require_noise_floor(counts, plan.words)


def _list(study: Study, store: Store) -> DocumentList | None:
    """The list in the store where it is that of ``study``."""
    folder = files.documents_dir(store, study.name)
    # Where there is none at all, no text need be read to know that.
    return read_list(folder, _spec_hash(study, store)) if read_list(folder) else None


def _digests(study: Study, store: Store) -> dict[str, SourceDigests]:
    """The digests of the study's texts by name; of those that are gone, as the list has them."""
    known = read_list(files.documents_dir(store, study.name))
    kept = known.sources if known else {}
    names = section_of(study).text_names
    return {name: source_digests(study, number, kept) for number, name in enumerate(names)}


def _maker(study: Study, plan: Plan, text_sha256: str, fingerprint: str) -> str:
    from contextcliff_dagster.extensions.continuation.documents.making import made_by

    compat = section_of(study).compat
    return made_by(plan, f"{text_sha256} {compat}" if compat else text_sha256, fingerprint)


def _spec_hash(study: Study, store: Store) -> str:
    plan, fingerprint = plan_of(study), tokenizer_of(study, "continuation").fingerprint
    digests = _digests(study, store).values()
    together = "".join(_maker(study, plan, one.text, fingerprint) for one in digests)
    return hashlib.sha256(together.encode()).hexdigest()


def _ensure_part(study: Study, store: Store, number: int, part: str) -> list[dict[str, Any]]:
    """The documents of a partition, made unless the store has them."""
    from contextcliff_dagster.extensions.continuation.compat_runs.documents import compat_rows
    from contextcliff_dagster.extensions.continuation.documents.making import (
        human_rows,
        passage_rows,
    )

    plan, tokenizer = plan_of(study), tokenizer_of(study, "continuation")
    name = section_of(study).text_names[number]
    digest = _digests(study, store)[name].text
    maker = _maker(study, plan, digest, tokenizer.fingerprint)
    path = files.part_file(store, study.name, name, part)
    kept = files.read_part(path, maker)
    if kept is None:
        text = read_source(study, number)
        if section_of(study).compat:
            rows = compat_rows(study, name)
        elif part == files.HUMAN:
            rows = human_rows(plan, text, tokenizer)
        else:
            point = plan.points(text)[int(part.removeprefix("p"))]
            rows = passage_rows(plan, point, tokenizer)
        files.write_part(path, rows, maker)
        kept = files.read_part(path, maker) or []
    return kept
