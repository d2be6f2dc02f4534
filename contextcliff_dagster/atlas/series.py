"""Series: the answers of one model to one task in one condition, without invalid ones.

Answers that do not reflect an effect of context are removed before analysis: failed calls, a
constant reply beyond some length, prompts that were cut to a constant number of tokens, and
documents longer than the harness or the model's window allows. Each removal leaves a sentence in
the notes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from contextcliff_dagster.contracts import ContextCliffError, FailureTag
from contextcliff_dagster.reporting.wording import count

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.atlas.sources import Source
    from contextcliff_dagster.contracts.arrays import Bools, Floats

LEAST_ANSWERS, LEAST_DOCUMENTS, LEAST_LENGTHS = 60, 20, 5
"""A verdict needs this many answers, and documents (natural lengths) or lengths (manufactured)."""
_MOST_TOKENS = {"words": 2.0, "chars": 2.0, "chars_zh": 2.0, "bytes": 1.0}
"""Most tokens per unit of prose (characters may be Chinese, bytes digits). Cuts are converted with
it, so that a text which may be cut never counts as read. Other units are tokens and stay
unchanged. For denser texts, such as code, use `Source.tokens_a`."""
_CONSTANT, _SAME_SHARE, _ALIKE = 10, 0.95, 0.01
"""Least number, and least share, of the longest answers that have the same reply or whose prompts
were read as the same length (within `_ALIKE`)."""
_WRONG = 0.1
"""A constant reply counts as a failure only up to this score."""
_UNREAD = (":not_in_prompt", ":hierarchical_chunks")
_REPEATED = re.compile(r"^(.{1,40}?)\1+$", re.DOTALL)
_NO_LENGTH = {"class", "tokens_task_average"}


@dataclass(frozen=True, eq=False)
class Series:
    """The answers of one model to one task under one condition.

    ``source`` is the name of its source's file; ``condition`` is empty if there is only one.
    ``records``: those to analyse, without prompts that were not read in full. ``read_to``: the
    longest length that was read in full, and ``window`` the model's, both in ``unit``. ``notes``:
    sentences on the answers that were left out. ``few``: why there is no verdict, or empty.
    """

    source: str
    model: str
    task: str
    condition: str
    unit: str
    natural: bool
    chance: float
    records: pd.DataFrame
    read_to: int | None
    window: int | None
    notes: tuple[str, ...]
    few: str

    @property
    def key(self) -> str:
        """Unique key of the series."""
        return " | ".join((self.source, self.model, self.task, self.condition, self.unit))

    @cached_property
    def state(self) -> str:
        """Text of all inputs of the series' result, used as its cache key."""
        stated = json.dumps([self.key, self.chance, self.window])
        return f"{stated}\n{self.records.to_csv(index=False)}"


def unit_of(text: str) -> str:
    """Return the unit of counting: words, chars, chars_zh, bytes or tokens of some kind.

    >>> [unit_of(u) for u in ("words", "bytes_prompt", "chars_target", "tokens_model", "")]
    ['words', 'bytes', 'chars', 'tokens_model', 'tokens']
    """
    plain = text.casefold()
    for unit in ("chars_zh", "word", "char", "byte"):
        if plain.startswith(unit):
            return unit if unit == "chars_zh" else f"{unit}s"
    if plain and not plain.startswith("token"):
        raise ContextCliffError(
            f"The unit of length {text!r} is unknown; use words, chars, chars_zh, bytes, or "
            "tokens with the tokenizer's name (tokens_o200k)."
        )
    return plain or "tokens"


def unit_words(unit: str) -> str:
    """Return the unit for a sentence: words, characters, bytes or tokens."""
    return {"chars": "characters", "chars_zh": "characters"}.get(unit, unit.partition("_")[0])


def in_unit(words: str, unit: str) -> str:
    """Replace "tokens" in a sentence by the series' unit.

    >>> in_unit("The cap is 1,000 tokens.", "bytes")
    'The cap is 1,000 bytes.'
    """
    return re.sub(r"\btokens\b", unit, words)


def named_bins(words: str, bins: Iterable[Any]) -> str:
    """Replace bin keys in a sentence by lengths, because ``b00`` means nothing to a reader."""
    spans = {row.bin: f"{row.edge_low:,} to {row.edge_high:,} tokens" for row in bins}
    words = re.sub(r"\bin (?=b\d\d\b)", "at ", words)
    return re.sub(r"\bb\d\d\b", lambda name: spans.get(name[0], name[0]), words)


def series_of(name: str, source: Source, table: pd.DataFrame) -> list[Series]:
    """Return the series of a source's table, sorted by key; ``name`` is the source's file."""
    source.check(name, table)
    rows = table[~table["length_unit"].isin(_NO_LENGTH)].copy()
    rows = rows[~rows["length_unit"].str.endswith(_UNREAD) & (rows["length_tokens"] > 0)]
    rows["model"] = rows["model"].map(source.model)
    rows["task"] = rows["task"].map(source.task)
    rows["unit"] = rows["length_unit"].map(unit_of)
    rows["failed"] = False
    for mark in source.failed:
        marked = rows["prompt_variant"].str.contains(mark, regex=False)
        rows["failed"] |= marked
        without = rows["prompt_variant"].str.replace(mark, "", regex=False).str.strip(":")
        rows["prompt_variant"] = rows["prompt_variant"].where(~marked, without)
    if source.only:
        rows = rows[rows["prompt_variant"].isin(source.conditions)]
    rows["condition"] = ""
    for column in source.series:
        words = rows[column].map(source.words)
        rows["condition"] = (rows["condition"] + ", " + words).str.strip(", ")
    keys = ["model", "task", "condition", "unit"]
    groups = rows.groupby(keys, sort=True)
    return [_series(name, source, [str(part) for part in key], group) for key, group in groups]


def _series(name: str, source: Source, key: Sequence[str], rows: pd.DataFrame) -> Series:
    import pandas as pd

    model, task, condition, unit = key
    natural, variants = source.is_natural(task), rows["prompt_variant"].unique()
    cuts = source.cuts(model, (*variants, condition))
    counted = unit_words(unit)
    of_unit = source.of_task(source.tokens_a, task, _MOST_TOKENS.get(unit, 1.0))
    window = source.window(model)
    window = None if window is None else int(window / of_unit)
    read_to = min((int(at / of_unit) for at in cuts), default=None)
    lengths = rows["length_tokens"].to_numpy(np.float64)
    notes: list[str] = []
    for limit, words in ((read_to, "was cut there"), (window, "is the model's window")):
        beyond = lengths > (np.inf if limit is None else limit)
        if limit is not None and beyond.any():
            notes.append(
                f"Nothing was read beyond {limit:,} {counted} (the prompt {words}). Left out: "
                f"{int(beyond.sum()):,} of {len(lengths):,} answers, on longer documents."
                if words.startswith("was")
                else f"Left out: {int(beyond.sum()):,} of {len(lengths):,} answers, on documents "
                f"beyond {limit:,} {counted}, which {words}."
            )
            rows, lengths = rows[~beyond], lengths[~beyond]
    failed = np.zeros(len(rows), bool)
    marked = rows["failed"].to_numpy(bool)
    scoreless = rows["score"].isna().to_numpy(bool) & ~marked
    silent = _silent(rows, lengths, counted)
    for mask, sentence in (
        (marked, _failed_sentence(marked, lengths, counted)),
        (scoreless, f"{int(scoreless.sum()):,} of {len(lengths):,} answers have no score."),
        *silent,
    ):
        if mask.any():
            failed = failed | mask
            notes.append(sentence)
    records = pd.DataFrame({
        "length_tokens": lengths,
        "score": rows["score"].where(~failed).to_numpy(np.float64),
        "document_id": rows["document"].where(rows["document"] != "", rows["sample"]).to_numpy(),
        "example_id": rows["sample"].to_numpy(),
        "failure": np.where(failed, FailureTag.TRANSPORT_ERROR.value, ""),
        "evidence_position": pd.to_numeric(rows["position"], errors="coerce").to_numpy(np.float64),
    }).reset_index(drop=True)  # fmt: skip
    if not natural or records["document_id"].eq("").all():
        records["document_id"] = _prompts(records, condition)
    few, chance = _too_few(records[~failed], natural), source.of_task(source.chance, task, 0.0)
    return Series(
        name, model, task, condition, unit, natural, chance, records, read_to, window,
        tuple(notes), few,
    )  # fmt: skip


def _prompts(records: pd.DataFrame, condition: str) -> Sequence[str]:
    """Return the units of manufactured prompts: documents if they outnumber lengths, else samples.

    Most sources name a size or a filler as the document; others share one text for all needles.
    """
    documents, lengths = records["document_id"], records["length_tokens"]
    if documents.nunique() > lengths.nunique() and (documents != "").all():
        return list(documents)
    names = records["example_id"]
    if (names == "").any():
        return [f"{condition}-{row}" for row in range(len(records))]
    if names.is_unique:
        return list(names)
    return [f"{name} at {length:g}" for name, length in zip(names, lengths, strict=True)]


def _failed_sentence(failed: Bools, lengths: Floats, unit: str) -> str:
    if not failed.any():
        return ""
    low, high = int(lengths[failed].min()), int(lengths[failed].max())
    where = f"at {low:,} {unit}" if low == high else f"at {low:,} to {high:,} {unit}"
    return (
        f"{int(failed.sum()):,} of {len(failed):,} calls failed or came back without a token, "
        f"{where}: a failure of calls says nothing about context."
    )


def _silent(rows: pd.DataFrame, lengths: Floats, unit: str) -> Iterator[tuple[Bools, str]]:
    """Yield masks of silent failures (empty or constant replies, cut prompts) with a sentence."""
    import pandas as pd

    if {"prompt_tokens", "completion_tokens"} & set(rows):
        numbers = {
            column: pd.to_numeric(rows[column], errors="coerce").to_numpy(np.float64)
            for column in ("prompt_tokens", "completion_tokens")
            if column in rows
        }
        empty = np.logical_or.reduce([values == 0 for values in numbers.values()])
        if empty.any():
            yield empty, _failed_sentence(empty, lengths, unit)
        read = numbers.get("prompt_tokens")
        if read is not None and (cut := _read_alike(read, lengths)) is not None:
            yield (
                lengths >= cut,
                f"From {cut:,.0f} {unit} on every prompt was read as the same number of tokens: it "
                "was cut without a word, and these answers are left out.",
            )
    if "reply" in rows and (since := _one_reply(rows, lengths)) is not None:
        yield (
            lengths >= since,
            f"From {since:,.0f} {unit} on one reply comes whatever is asked: the server fails "
            "there, and these answers are left out.",
        )


def _read_alike(read: Floats, lengths: Floats) -> float | None:
    """Return the length from which all prompts were read as the same number of tokens, or None."""
    valid = np.isfinite(read)
    longest = read[valid][np.argsort(lengths[valid], kind="stable")[-2 * _CONSTANT :]]
    if not len(longest) or (usual := float(np.median(longest))) <= 0:
        return None
    constant = valid & (np.abs(read - usual) <= _ALIKE * usual)
    # Take the longest plateau: shorter prompts may reach its length without being cut.
    for start in np.unique(lengths[constant]):
        beyond = valid & (lengths >= start)
        if beyond.sum() < _CONSTANT or lengths[beyond].max() < 1.1 * start:
            return None
        if constant[beyond].mean() >= _SAME_SHARE:
            return float(start)
    return None


def _one_reply(rows: pd.DataFrame, lengths: Floats) -> float | None:
    """Return the length from which nearly all replies are the same wrong reply, or None."""
    wrong = rows["score"].fillna(0.0).to_numpy(np.float64) <= _WRONG
    replies = np.array([_REPEATED.sub(r"\1", text.strip()) for text in rows["reply"]], str)
    common, times = np.unique(replies[wrong], return_counts=True)
    if not len(common) or times.max() < _CONSTANT:
        return None
    constant = wrong & (replies == common[np.argmax(times)])
    for start in np.sort(np.unique(lengths[constant])):
        beyond = lengths >= start
        if beyond.sum() >= _CONSTANT and constant[beyond].mean() >= _SAME_SHARE:
            return float(start)
    return None


def _too_few(scored: pd.DataFrame, natural: bool) -> str:
    documents = scored["document_id"].nunique()
    named = natural and (scored["example_id"] != "").all()
    examples = len(scored.drop_duplicates(["document_id", "example_id"])) if named else len(scored)
    answers = examples if natural else documents
    lengths = scored["length_tokens"].nunique()
    if natural and (answers < LEAST_ANSWERS or documents < LEAST_DOCUMENTS):
        amount = f"{count(answers, 'answer')} on {count(documents, 'document')}"
        return f"{amount}; it takes {LEAST_ANSWERS} on {LEAST_DOCUMENTS}."
    if not natural and (answers < LEAST_ANSWERS or lengths < LEAST_LENGTHS):
        return (
            f"{answers:,} prompts at {lengths:,} lengths; it takes {LEAST_ANSWERS} at "
            f"{LEAST_LENGTHS}."
        )
    return ""
