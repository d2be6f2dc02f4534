"""Several files read as one measurement: a benchmark that writes a file a task or a length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.records import ScoreRecords


def pooled(files: Sequence[tuple[Path, Sequence[ScoreRecords]]]) -> list[ScoreRecords]:
    """The records of all ``files`` by model, in order of the models' names.

    Examples of logs that share a name are repeats of one; those of other files are distinguished by
    their file. Files that name no model are of one.

    Raises:
        ScoreFileError: lengths or scores of one model are not the same measure in all files.
    """
    by_model: dict[str | None, list[tuple[Path, ScoreRecords]]] = {}
    for path, found in files:
        for records in found:
            by_model.setdefault(records.model, []).append((path, records))
    if None in by_model and len(by_model) > 1:
        path = by_model[None][0][0]
        raise ScoreFileError(
            f"{path} names no model and other files do: analyse it by itself with --model NAME."
        )
    return [_one(model, by_model[model]) for model in sorted(by_model, key=str)]


def _one(model: str | None, parts: Sequence[tuple[Path, ScoreRecords]]) -> ScoreRecords:
    import pandas as pd

    path, first = parts[0]
    for other, records in parts[1:]:
        if records.length_kind != first.length_kind:
            kinds = (kind or "length_tokens" for kind in (first.length_kind, records.length_kind))
            raise ScoreFileError(
                f"{path} and {other} have lengths that are not alike ({'; '.join(kinds)}): pool "
                "files of one measure, or count all with --tokenizer."
            )
        if records.score_name != first.score_name:
            raise ScoreFileError(
                f"{path} and {other} have other scores ({first.score_name}; {records.score_name}): "
                "choose one with --metric NAME, or --score em, f1 or contained."
            )
    tasks = sorted({records.task for _, records in parts if records.task})
    frames = []
    for at, records in parts:
        frame = records.frame
        if len(tasks) > 1 and records.task is not None:
            frame = frame.assign(task=records.task)
        if records.length_kind is None and "example_id" in frame:
            named = f"{stem(at)}/" + frame["example_id"].astype("string")
            frame = frame.assign(example_id=named.astype(object).where(named.notna(), None))
        frames.append(frame)
    frame = pd.concat(frames, ignore_index=True)
    if "example_id" in frame and first.length_kind is not None:
        frame["replicate"] = frame.groupby("example_id", dropna=False).cumcount()
    notes = dict.fromkeys(note for _, records in parts for note in records.notes)
    if len(tasks) > 1:
        mixed = (
            f"{len(tasks)} tasks are pooled ({', '.join(tasks[:6])}"
            f"{' and others' if len(tasks) > 6 else ''}): where long documents belong to harder "
            "tasks, a fall is the tasks' and not the length's."
        )
        notes[mixed] = None
    return ScoreRecords(
        model,
        frame,
        task=tasks[0] if len(tasks) == 1 else None,
        tokenizer=first.tokenizer,
        score_name=first.score_name,
        length_kind=first.length_kind,
        notes=tuple(notes),
    )
