"""A document that many prompts share: encoded, hashed and counted once, not once a call."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property

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
