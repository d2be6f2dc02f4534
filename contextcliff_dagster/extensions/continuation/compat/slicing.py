"""Context sizes and contexts as Context-Tester makes them."""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from contextcliff_dagster.contracts import DataError, StudyError

_SMALLEST_TIER, _SMALLEST = 2048, 1024


def context_lengths(
    max_context: int, divisions: int = 1, start_context: int | None = None
) -> list[int]:
    """Return the sizes in tokens, ascending.

    They are the powers of two from 2,048 to ``max_context``, without those below
    ``start_context``. ``divisions`` of more than one adds points between neighbours in equal steps:
    linear, although its documentation calls them geometric. Where no power fits, there is one size.

    Raises:
        StudyError: ``divisions`` is no power of two, or a size is not positive.
    """
    if divisions < 1 or divisions & (divisions - 1):
        raise StudyError(f"--divisions is {divisions}; it must be a power of two, as 1, 2 or 4.")
    if max_context < 1 or (start_context is not None and start_context < 1):
        raise StudyError("--max-context and --start-context are numbers of tokens from 1 on.")
    tiers, tier = [], _SMALLEST_TIER
    while tier <= max_context:
        tiers.append(tier)
        tier *= 2
    if not tiers:
        tiers = [min(_SMALLEST, max_context)]
    if start_context is not None:
        tiers = [t for t in tiers if t >= start_context] or [min(start_context, max_context)]
    between = (
        int(low + (high - low) / divisions * step)
        for low, high in pairwise(tiers)
        for step in range(1, divisions)
    )
    return sorted({*tiers, *between})


def require_start(start_context: int, max_tokens: int) -> None:
    """Return if a context of ``start_context`` tokens leaves as much text as it generates.

    Raises:
        StudyError: it is smaller than twice ``max_tokens``.
    """
    if start_context < 2 * max_tokens:
        raise StudyError(
            f"--start-context is {start_context:,}, less than twice --max-tokens "
            f"({max_tokens:,}); start at {2 * max_tokens:,} or generate less."
        )


_STOPS = re.compile(r"""["'“”‘’][.!?]+["'“”‘’]|\.{3,}[!?]?|[.!?]{2,}|[.!?]""")
_INITIAL = re.compile(r"\b[A-Z]\Z")
_BOUNDARY = re.compile(r"""[.!?]+["'”’)\]]*(?=\s|\Z)|\n\n+""")
_SHARE_USED, _SURPLUS, _MARGIN = 0.8, 1.2, 20


class TokenCounter(Protocol):
    """Counts tokens of plain text."""

    def count(self, text: str) -> int: ...


def source_text(content: str) -> str:
    """The first 80% of the characters of a file, normalised.

    NFKC; a double hyphen becomes an em dash; paragraphs are separated by a blank line each, and
    inside them line breaks are spaces. Quotes stay as they are.

    Raises:
        DataError: there is no text.
    """
    kept = unicodedata.normalize("NFKC", content[: int(_SHARE_USED * len(content))])
    lines = kept.replace("--", "—").replace("\r\n", "\n").replace("\r", "\n")
    paragraphs = (piece.replace("\n", " ").strip() for piece in re.split(r"\n\s*\n", lines))
    text = "\n\n".join(piece for piece in paragraphs if piece)
    if not text:
        raise DataError("The text is empty; name a file with a long text.")
    return text


@dataclass(frozen=True)
class Slices:
    """The working text, and what is cut from its end.

    ``max_tokens`` is the length of a continuation; ``overhead`` what the instruction takes, in
    tokens. ``source_tokens``: of the text that it was cut from. ``repeated``: whether that was too
    short, so that it stands there more than once.
    """

    text: str
    tokenizer: TokenCounter
    max_tokens: int
    overhead: int
    source_tokens: int
    repeated: bool

    @cached_property
    def ground_truth(self) -> str:
        """The author's continuation: the last ``max_tokens`` tokens."""
        return last_tokens(self.text, self.tokenizer, self.max_tokens)

    @cached_property
    def before(self) -> str:
        """All before the author's continuation."""
        return self.text[: len(self.text) - len(self.ground_truth)]

    @cached_property
    def _tokens_before(self) -> int:
        return self.tokenizer.count(self.before)

    def has(self, context_tokens: int) -> bool:
        """Whether the text reaches that far; the reference stops at the first that it does not."""
        return 0 < self._story_tokens(context_tokens) <= self._tokens_before

    def context(self, context_tokens: int) -> str:
        """Return the text before the continuation that fills a window of ``context_tokens``.

        Its last, unfinished sentence is still there: see `trimmed`.

        Raises:
            DataError: the text is too short, or the window has no room for any.
        """
        if not self.has(context_tokens):
            raise DataError(
                f"A context of {context_tokens:,} tokens does not fit: the text has "
                f"{self._tokens_before:,} tokens before the {self.max_tokens:,} to be continued, "
                f"and the instruction takes {self.overhead:,}; use a longer text or another size."
            )
        return last_tokens(self.before, self.tokenizer, self._story_tokens(context_tokens))

    def _story_tokens(self, context_tokens: int) -> int:
        return context_tokens - self.max_tokens - self.overhead


def sliced(
    text: str, tokenizer: TokenCounter, max_context: int, max_tokens: int, instruction: str
) -> Slices:
    """Cut ``text`` (of `source_text`) for contexts of up to ``max_context`` tokens.

    A text of fewer than 1.2 x ``max_context`` + ``max_tokens`` tokens is repeated to that length,
    as the reference does; the author's continuation may then be in the context.
    """
    overhead = tokenizer.count(instruction) + _MARGIN
    needed = needed_tokens(max_context, max_tokens)
    there = tokenizer.count(text)
    repeated = there < needed
    if repeated:
        text *= needed // max(there, 1) + 1
    enough = _reach(len(text), lambda n: tokenizer.count(text[:n]) > needed, needed)
    window = pruned(text[:enough], tokenizer, max_context)
    return Slices(window, tokenizer, max_tokens, overhead, there, repeated)


def needed_tokens(max_context: int, max_tokens: int) -> int:
    """Tokens of a text that is not repeated."""
    return int(_SURPLUS * max_context) + max_tokens


def last_tokens(text: str, tokenizer: TokenCounter, most: int) -> str:
    """The longest end of ``text`` of at most ``most`` tokens, to the character."""
    end = len(text)

    def count(characters: int) -> int:
        return tokenizer.count(text[end - characters :])

    high = _reach(end, lambda n: count(n) > most, most)
    return text[end - bisect.bisect_right(range(high + 1), most, key=count) + 1 :]


def _reach(length: int, is_over: Callable[[int], bool], tokens: int) -> int:
    """Characters that hold ``tokens`` for certain, or all: long texts are not counted whole."""
    n = max(8 * tokens, 64)
    while n < length and not is_over(n):
        n *= 2
    return min(n, length)


def pruned(text: str, tokenizer: TokenCounter, most: int) -> str:
    """The longest beginning of ``text`` of at most ``most`` tokens that ends at a boundary.

    Without a boundary the first 2 x ``most`` characters.
    """
    ends = [found.end() for found in _BOUNDARY.finditer(text)]
    if not ends:
        return text[: 2 * most]
    fitting = bisect.bisect_right(ends, most, key=lambda end: tokenizer.count(text[:end]))
    return text[: ends[fitting - 1]] if fitting else text[: 2 * most]


def trimmed(text: str) -> str:
    """``text`` up to its last sentence end; unchanged where it has none.

    No end is a single full stop after an initial or a digit. `Mr.` is taken for one, and a closing
    quote after the stop is cut off, as in the reference.
    """
    bare = text.rstrip()
    for found in reversed(list(_STOPS.finditer(bare))):
        if found[0] == "." and _is_no_end(bare, found.start()):
            continue
        return bare[: found.end()]
    return bare


def _is_no_end(text: str, dot: int) -> bool:
    return text[dot - 1 : dot].isdigit() or bool(_INITIAL.search(text[max(0, dot - 2) : dot]))
