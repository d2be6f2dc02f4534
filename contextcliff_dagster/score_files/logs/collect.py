"""Logged answers to records: one length, one score and one document each, and what is left out."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.score_files.logs.answers import Answer, Log, LogOptions
from contextcliff_dagster.score_files.logs.lengths import Lengths, digest
from contextcliff_dagster.score_files.logs.notes import Tally, sentences
from contextcliff_dagster.score_files.records import ScoreRecords

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.arrays import Bools, Floats, Ints

OWN_SCORES = ("em", "f1", "contained")
NO_LENGTH = "without a length"
NO_SCORE = "without a score"


def collect(log: Log, options: LogOptions) -> ScoreRecords:
    """The records of ``log``; what could not be used is counted in their notes.

    Raises:
        ScoreFileError: the log cannot be read, has several scores and none is chosen, or nothing
            in it can be used.
    """
    found = _Collected(log, options)
    for answer in log.answers:
        found.add(answer)
    return found.records()


class _Collected:
    """Columns of what was read so far; texts are let go one by one."""

    def __init__(self, log: Log, options: LogOptions) -> None:
        self._log, self._options = log, options
        self._lengths = Lengths(options)
        self._length, self._prompt, self._completion = array("d"), array("d"), array("d")
        self._example: list[str | None] = []
        self._document: list[str | None] = []
        self._digest: list[str | None] = []
        self._variant: list[str] = []
        self._error: list[str | None] = []
        self._scores: dict[str, tuple[array[int], array[float]]] = {}
        self._own = tuple(array("d") for _ in OWN_SCORES)
        self._of_prompt = False

    def add(self, answer: Answer) -> None:
        row = len(self._error)
        document = digest(answer.text) if answer.text is not None else None
        length = None if answer.error else self._lengths.of(answer, document)
        self._error.append(answer.error)
        self._variant.append(answer.variant)
        self._example.append(answer.example)
        self._document.append(answer.document or document)
        self._digest.append(document)
        self._of_prompt |= answer.document is None and answer.of_prompt and document is not None
        for column, value in (
            (self._length, length),
            (self._prompt, answer.prompt_tokens),
            (self._completion, answer.completion_tokens),
        ):
            column.append(float("nan") if value is None else value)
        for name, score in answer.scores.items():
            rows, values = self._scores.setdefault(name, (array("q"), array("d")))
            rows.append(row)
            values.append(score)
        for column, score in zip(self._own, self._scored_here(answer), strict=True):
            column.append(score)

    def _scored_here(self, answer: Answer) -> tuple[float, float, float]:
        wanted = self._options.own_score is not None or not answer.scores
        if not wanted or answer.output is None or not answer.accepted or answer.error:
            return (float("nan"),) * 3
        from contextcliff_dagster.scoring.parse import parse_answer
        from contextcliff_dagster.scoring.scorers import score_text

        return score_text(parse_answer(answer.output), answer.accepted)

    def records(self) -> ScoreRecords:
        log = self._log
        if not self._error:
            raise ScoreFileError(f"{log.path} holds no answers: it is an empty log of {log.tool}.")
        name, own, values = self._chosen()
        length, document = self._measured()
        reasons = np.array([error or "" for error in self._error], dtype=object)
        reasons[(reasons == "") & np.isnan(values)] = NO_SCORE
        reasons[(reasons == "") & np.isnan(length)] = NO_LENGTH
        seen = self._of_variant(name, own)
        used = np.flatnonzero((reasons == "") & seen)
        left_out = Counter(reason for reason in reasons[seen] if reason)
        if not len(used):
            raise ScoreFileError(self._nothing(left_out))
        frame = self._frame(used, length, document, self._of_scale(name, values, used))
        tally = Tally(
            answers=int(seen.sum()),
            used=len(used),
            examples=frame["example_id"].nunique() if "example_id" in frame else len(used),
            left_out=left_out,
            rule=self._lengths.rule,
            tokenizer=self._lengths.name,
            of_prompt=self._of_prompt and self._lengths.rule != "documents",
            documents_known="document_id" in frame,
            scored_here=name if own else None,
        )
        return ScoreRecords(
            log.model,
            frame,
            task=log.task,
            tokenizer=None if tally.rule == "logged" else tally.tokenizer,
            score_name=name,
            length_kind=log.length_kind if tally.rule == "logged" else tally.tokenizer,
            notes=tuple(sentences(log, tally)),
        )

    def _chosen(self) -> tuple[str, bool, Floats]:
        """The score's name, whether it is ours, and its value in every row (NaN: none)."""
        log, options = self._log, self._options
        listed = log.score_names
        names = [n for n in self._scores if listed is None or n in listed]
        if options.own_score is not None:
            return self._own_score(options.own_score)
        if options.metric is not None:
            wanted = options.metric.removesuffix(",none")
            found = [n for n in names if n == wanted]
            found = found or [n for n in names if n.partition(",")[0] == wanted]
        elif not names:
            return self._own_score(log.default_score)
        else:
            found = names
        if len(found) != 1:
            has = ", ".join(sorted(names)) or "none"
            what = f"no score {options.metric!r}" if not found else f"{len(found)} scores"
            raise ScoreFileError(
                f"{log.path} has {what}; found: {has}. Choose one with --metric NAME, or score the "
                "answers here with --score em, f1 or contained."
            )
        values = np.full(len(self._error), np.nan)
        at, scores = self._scores[found[0]]
        values[np.frombuffer(at, dtype=np.int64)] = np.frombuffer(scores, dtype=np.float64)
        return found[0], False, values

    def _own_score(self, name: str) -> tuple[str, bool, Floats]:
        values: Floats = np.array(self._own[OWN_SCORES.index(name)], dtype=np.float64)
        if np.isnan(values).all():
            raise ScoreFileError(
                f"{self._log.path}: no answer of this {self._log.tool} log has both an output and "
                "accepted answers to score it by."
            )
        return name, True, values

    def _of_variant(self, name: str, own: bool) -> Bools:
        """Rows that are of the chosen score's filter; of ours, of the first."""
        of = np.array(self._variant, dtype=object)
        wanted = self._variant[0] if own else name.partition(",")[2]
        return np.asarray(of == wanted) if len(set(self._variant)) > 1 else np.ones(len(of), bool)

    def _measured(self) -> tuple[Floats, list[str | None]]:
        """Lengths and documents of all rows."""
        length: Floats = np.array(self._length, dtype=np.float64)
        path = self._options.documents
        if path is None:
            return length, self._document
        found = self._lengths.of_documents(path, {n for n in self._example if n is not None})
        document: list[str | None] = [None] * len(length)
        for row, name in enumerate(self._example):
            if name is not None and name in found:
                document[row], length[row] = found[name]
        return length, document

    def _of_scale(self, name: str, values: Floats, used: Ints) -> Floats:
        scale, kept = self._options.scale, values[used]
        outside = (kept < 0) | (kept > scale)
        if outside.any():
            hint = "; percentages are read with --scale 100" if scale == 1 else ""
            raise ScoreFileError(
                f"{self._log.path}: {int(outside.sum()):,} values of {name} lie outside "
                f"0..{scale:g} (the first is {kept[outside][0]:g}){hint}."
            )
        return kept if scale == 1 else np.round(kept / scale, 12)

    def _frame(
        self,
        used: Ints,
        length: Floats,
        document: list[str | None],
        score: Floats,
    ) -> Any:
        import pandas as pd

        frame = pd.DataFrame({"length_tokens": length[used], "score": score})
        if any(document[row] for row in used):
            frame["document_id"] = pd.Series([document[row] for row in used], dtype=object)
        if any(self._example[row] for row in used):
            frame["example_id"] = pd.Series([self._named(row) for row in used], dtype=object)
            frame["replicate"] = frame.groupby("example_id", dropna=False).cumcount()
        for name, column in (
            ("prompt_tokens", self._prompt),
            ("completion_tokens", self._completion),
        ):
            values = np.array(column, dtype=np.float64)[used]
            if not np.isnan(values).all():
                frame[name] = values
        return frame

    def _named(self, row: int) -> str | None:
        """The example's name: a question over another text is another example."""
        name, text = self._example[row], self._digest[row]
        if name is None:
            return None
        task = f"{self._log.task}/" if self._log.task else ""
        return f"{task}{name}" + (f"/{text[:16]}" if text else "")

    def _nothing(self, left_out: Counter[str]) -> str:
        counted = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        hint = ""
        if left_out.get(NO_LENGTH):
            log = self._log
            hint = f" {log.no_text[0].upper()}{log.no_text[1:]}: g" if log.no_text else " G"
            hint += "ive the data set's own file, whose ids the log has, with --documents FILE."
        return (
            f"{self._log.path}: none of the answers in this {self._log.tool} log can be used "
            f"({counted}).{hint}"
        )
