"""Training and measuring batches: ledgers and their questions directly as token ids.

A batch holds whole ledgers of one length and, for each, many questions. Every question is seen as
if it alone came after the document, which is how the model is used: questions share the document
but not each other (`network.answer_logits` does the same arithmetic once per document).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.reference.tokenizer import ASSISTANT, END, USER, vocabulary
from contextcliff_dagster.reference.warehouse_documents import WORDINGS, LedgerArrays, draw_ledgers

Ids = NDArray[np.int64]
_Tokens = list[Ids | int]

_IDS, _ = vocabulary()
_DAY, _SKU, _QTY, _SUB = (_IDS[name] for name in ("LedgerĠofĠdayĠ", "ĠSKU-", "Ġqty=", "Ġsub="))
_NEWLINE, _SEMICOLON, _ASK = _IDS["Ċ"], _IDS[";"], _IDS["?"]
_WORDING = np.array([_IDS[word] for word in WORDINGS])
_NUMBER = np.array([_IDS[f"{n:03d}"] for n in range(1_000)])


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions of one level: `prompt` (b, n, p) and `answer` (b, n, a), the end token included."""

    level: int
    prompt: Ids
    answer: Ids


@dataclass(frozen=True, slots=True)
class Batch:
    """`document` (b, t), with the chat's opening token, and its questions by level.

    `records_between` (b, n): how many records apart the two records of each level 2 question are.
    """

    document: Ids
    records_between: Ids
    questions: tuple[Questions, ...]


def _document_ids(ledgers: LedgerArrays) -> Ids:
    n, records = ledgers.key.shape
    target_key = np.take_along_axis(ledgers.key, ledgers.target, axis=1)
    substitute, quantity = ledgers.is_substitute, _NUMBER[ledgers.quantity]
    first = np.where(substitute, _NUMBER[target_key], quantity[..., 0])
    second = np.where(substitute, _SEMICOLON, quantity[..., 1])
    field = np.where(substitute, _SUB, _QTY)
    record: _Tokens = [_SKU, _NUMBER[ledgers.key], field, first, second, _NEWLINE]
    body = _stacked(record, (n, records)).reshape(n, -1)
    header = _stacked([_DAY, _NUMBER[ledgers.day], _NEWLINE], (n,))
    return np.concatenate([header, body], axis=1)


def _stacked(tokens: _Tokens, shape: tuple[int, ...]) -> Ids:
    """The columns one behind the other; a single token is the same in every row."""
    return np.stack([np.broadcast_to(token, shape) for token in tokens], axis=-1)


def draw_batch(
    rng: np.random.Generator,
    documents: int,
    records: int,
    questions: tuple[int, int],
    *,
    varied: bool = True,
) -> Batch:
    """Draw ledgers of `records` records with at most so many questions of level 1 and level 2 each.

    With `varied` the wording, the number of blank lines before the question and now and then the
    mode (plain completion instead of chat) change from batch to batch; without, a question is asked
    as the default recipe of a study asks it, in chat after a blank line: beyond the length trained
    on, answers depend on such details.
    """
    ledgers = draw_ledgers(rng, documents, records)
    chat = not varied or rng.random() < 0.875
    blank = int(rng.integers(0, 3)) if varied else 1
    rows = np.arange(documents)[:, None]
    substitutes = int(ledgers.is_substitute[0].sum())
    # Sorting noise with the wrong kind of record pushed to the end draws without replacement.
    noise = rng.random((documents, records))
    groups = []
    between = np.empty((documents, 0), dtype=np.int64)
    for level, available in ((1, records - substitutes), (2, substitutes)):
        count = min(questions[level - 1], available)
        if count == 0:
            continue
        wrong_kind = ledgers.is_substitute if level == 1 else ~ledgers.is_substitute
        asked = np.argsort(noise + wrong_kind, axis=1)[:, :count]
        target = ledgers.target[rows, asked]
        if level == 2:
            between = np.abs(target - asked)
        shape = (documents, count)
        wording = rng.integers(0, 3, shape) if varied else np.zeros(shape, dtype=np.int64)
        key, turn = _NUMBER[ledgers.key[rows, asked]], _IDS[ASSISTANT] if chat else _NEWLINE
        prompt: _Tokens = [*[_NEWLINE] * blank, _WORDING[wording], _SKU, key, _ASK, turn]
        quantity = _NUMBER[ledgers.quantity[rows, target]]
        answer: _Tokens = [quantity[..., 0], quantity[..., 1], _IDS[END]]
        if level == 2:
            answer = [_NUMBER[ledgers.key[rows, target]], _SEMICOLON, _QTY, *answer]
        groups.append(Questions(level, _stacked(prompt, shape), _stacked(answer, shape)))
    document = _document_ids(ledgers)
    if chat:
        opening = np.full((documents, 1), _IDS[USER])
        document = np.concatenate([opening, document], axis=1)
    return Batch(document, between, tuple(groups))
