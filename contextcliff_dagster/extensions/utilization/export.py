"""Export documents, questions, answers and verdicts as JSON lines, with an inspect_ai task."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization import extraction
from contextcliff_dagster.extensions.utilization.prompts import TEMPLATES, asked
from contextcliff_dagster.extensions.utilization.section import OnOff, QuestionPlace
from contextcliff_dagster.store import atomic_path

_LINES = ("documents", "questions", "answers", "verdicts")
_PROGRAMS = (Path(__file__).with_name("inspect_task.py"), Path(extraction.__file__))
_OF_DOCUMENT = ("document_id", "benchmark", "scale", "seed", "format", "length_tokens", "records")


class Exported(NamedTuple):
    """The numbers of exported documents and questions."""

    documents: int
    questions: int


def export(
    documents: Iterable[Mapping[str, Any]],
    folder: Path,
    *,
    thought: OnOff = "off",
    question_place: QuestionPlace = "after",
) -> Exported:
    """Stream documents into files of ``folder``, all or none; replace existing files.

    ``documents.jsonl`` has the texts and ``questions.jsonl`` the prompts with ``{document}`` as the
    placeholder; ``answers.jsonl`` and ``verdicts.jsonl`` (of the verifier) have one row per
    question. ``inspect_task.py`` reads these files. Repeated texts are written once.

    Args:
        documents: rows of the table `utilization_documents`.
        folder: the target folder; created if missing.
        thought: whether prompts ask for reasons before the answer.
        question_place: whether the question comes after or before the document.

    Raises:
        StoreError: the folder cannot be written.
    """
    template = TEMPLATES[question_place, thought]
    written_ids: set[str] = set()
    questions = 0
    with ExitStack() as files:
        temporary = {
            name: files.enter_context(atomic_path(folder / f"{name}.jsonl", private=False))
            for name in _LINES
        }
        lines = {
            name: files.enter_context(path.open("w", encoding="utf-8"))
            for name, path in temporary.items()
        }
        for document in documents:
            if document["document_id"] in written_ids:
                continue
            written_ids.add(document["document_id"])
            for name, row in _rows(document, template, thought):
                lines[name].write(json.dumps(row, ensure_ascii=False) + "\n")
                questions += name == "questions"
        for program in _PROGRAMS:
            copy = files.enter_context(atomic_path(folder / program.name, private=False))
            shutil.copyfile(program, copy)
    return Exported(len(written_ids), questions)


def _rows(
    document: Mapping[str, Any], template: str, thought: OnOff
) -> Iterator[tuple[str, dict[str, Any]]]:
    common = {name: document[name] for name in _OF_DOCUMENT}
    key = "/".join(str(document[name]) for name in ("benchmark", "scale", "seed"))
    arm = json.loads(document["arm"])
    yield "documents", {**common, "document_key": key, "arm": arm, "text": document["text"]}
    listed = zip(*(json.loads(document[name]) for name in _OF_QUESTION), strict=True)
    for number, (question, evidence, verdict) in enumerate(listed):
        identity = {
            "question_id": f"{document['document_id'][:16]}-{number}",
            "document_id": document["document_id"],
        }
        question = dict(question)
        answer = question.pop("answer")
        prompt = template.replace("{question}", asked(question["text"], question["form"], thought))
        yield "questions", {**identity, **question, "evidence": evidence, "prompt": prompt}
        yield "answers", {**identity, "answer": answer}
        yield "verdicts", {**identity, **verdict}


_OF_QUESTION = ("questions", "evidence", "verdicts")
