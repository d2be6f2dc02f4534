"""A document that many prompts share: encoded, hashed and counted once, not once a call.

How tokens are drawn where a recipe asks for more than the likeliest ones.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from contextcliff_dagster.contracts import StudyError

MARK = "\ue000the document\ue001"
"""The document's place in a prompt's outline; a question that holds these private-use characters
is encoded as a whole."""
_MOST_CHARS = 8_000_000
_kept: OrderedDict[str, SharedText] = OrderedDict()
_keeping = threading.Lock()


class SharedText:
    """One text and what is derived from it at some cost."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._states: dict[bytes, hashlib._Hash] = {}
        self._counts: dict[str, int] = {}
        self._counting = threading.Lock()

    @cached_property
    def json(self) -> bytes:
        """What `json.dumps` with ``ensure_ascii=False`` gives between the quotes, in UTF-8."""
        import orjson

        return orjson.dumps(self.text)[1:-1]

    def within(self, outline: bytes) -> list[bytes]:
        """JSON that has `MARK` where this text belongs, in pieces with the text in its place.

        Raises:
            ValueError: the mark is not there exactly once.
        """
        head, tail = outline.split(MARK.encode())
        return [head, self.json, tail]

    def sha256_within(self, outline: bytes) -> str:
        """SHA-256 (hex) of ``b"".join(within(outline))``; what comes before is hashed only once."""
        head, text, tail = self.within(outline)
        state = self._states.get(head)
        if state is None:
            state = hashlib.sha256(head)
            state.update(text)
            self._states = {head: state}  # wordings differ behind the document, if at all
        whole = state.copy()
        whole.update(tail)
        return whole.hexdigest()

    def count(self, tokenizer: str, count: Callable[[str], int]) -> int:
        """Tokens of the text alone under the named tokenizer."""
        with self._counting:
            if tokenizer not in self._counts:
                self._counts[tokenizer] = count(self.text)
            return self._counts[tokenizer]


def shared_text(document_id: str, load: Callable[[str], str]) -> SharedText:
    """The text of a document; the last ones asked for, up to 8 million characters, are kept."""
    with _keeping:
        if document_id in _kept:
            _kept.move_to_end(document_id)
            return _kept[document_id]
    made = SharedText(load(document_id))
    with _keeping:
        made = _kept.setdefault(document_id, made)
        chars = sum(len(shared.text) for shared in _kept.values())
        while chars > _MOST_CHARS and len(_kept) > 1:
            chars -= len(_kept.popitem(last=False)[1].text)
    return made


def forget_shared_texts() -> None:
    """Let go of the texts that are kept for further calls."""
    with _keeping:
        _kept.clear()


_MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """The same prompt is answered ``rounds`` times, round ``i`` with the seed ``seed + i``.

    ``top_k``: tokens that may be drawn, 0 for all; ``top_p``: their share of the probability. The
    temperature is the recipe's.

    Raises:
        StudyError: a value is out of its bounds.
    """

    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    rounds: int = 1

    def __post_init__(self) -> None:
        for name, holds, bounds in (
            ("top_k", self.top_k >= 0, "0 (all tokens) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 2**31 - _MOST_ROUNDS, "0 or more, and below 2,147,482,648"),
            ("rounds", 1 <= self.rounds <= _MOST_ROUNDS, f"from 1 to {_MOST_ROUNDS:,}"),
        ):
            if not holds:
                raise StudyError(f"{name} is {getattr(self, name)}; it should be {bounds}.")

    def of_all_rounds(self) -> dict[str, Any]:
        """What is the same in every round, JSON-ready."""
        fields = asdict(self)
        del fields["seed"], fields["rounds"]
        return fields

    def seed_of(self, round_number: int) -> int:
        """The seed of a round; rounds count from 0."""
        return self.seed + round_number
