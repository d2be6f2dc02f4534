"""Context sizes, and contexts cut from a text, as in Context-Tester."""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import DataError, StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

_SMALLEST_TIER, _SMALLEST = 2048, 1024


def context_lengths(
    max_context: int, divisions: int = 1, start_context: int | None = None
) -> list[int]:
    """Return the context sizes in tokens, ascending.

    They are the powers of two from 2,048 to ``max_context``, without those below ``start_context``.
    More than one division adds points between neighbours in linear steps, although Context-Tester's
    documentation calls them geometric. If no power fits, there is a single size.

    Raises:
        StudyError: ``divisions`` is not a power of two.
    """
    if divisions < 1 or divisions & (divisions - 1):
        raise StudyError(f"--divisions is {divisions}; use a power of two: 1, 2, 4, ...")
    tiers, tier = [], _SMALLEST_TIER
    while tier <= max_context:
        tiers.append(tier)
        tier *= 2
    if not tiers:
        tiers = [min(_SMALLEST, max_context)]
    if start_context is not None:
        tiers = [t for t in tiers if t >= start_context] or [min(start_context, max_context)]
    points = (
        int(low + (high - low) / divisions * step)
        for low, high in pairwise(tiers)
        for step in range(1, divisions)
    )
    return sorted({*tiers, *points})


_STOPS = re.compile(r"""["'“”‘’][.!?]+["'“”‘’]|\.{3,}[!?]?|[.!?]{2,}|[.!?]""")
_INITIAL = re.compile(r"\b[A-Z]\Z")
_BOUNDARY = re.compile(r"""[.!?]+["'”’)\]]*(?=\s|\Z)|\n\n+""")
_SHARE_USED, _SURPLUS, _MARGIN = 0.8, 1.2, 20


def source_text(content: str) -> str:
    """Return the first 80% of a file's characters, normalised.

    The text is in NFKC; double hyphens become em dashes; a blank line separates paragraphs, and
    line breaks within them become spaces. Quotes stay as they are.

    Raises:
        DataError: the text is empty.
    """
    normalised = unicodedata.normalize("NFKC", content[: int(_SHARE_USED * len(content))])
    lines = normalised.replace("--", "—").replace("\r\n", "\n").replace("\r", "\n")
    paragraphs = (piece.replace("\n", " ").strip() for piece in re.split(r"\n\s*\n", lines))
    text = "\n\n".join(piece for piece in paragraphs if piece)
    if not text:
        raise DataError("The text is empty; choose a file with a long text.")
    return text


@dataclass(frozen=True)
class Slices:
    """The text in use, and the pieces cut from its end.

    ``max_tokens`` is the length of a continuation, ``overhead`` the length of the instruction and
    ``source_tokens`` that of the source text, all in tokens. ``repeated`` is true if the source was
    too short and was therefore repeated.
    """

    text: str
    tokenizer: Tokenizer
    max_tokens: int
    overhead: int
    source_tokens: int
    repeated: bool

    @cached_property
    def ground_truth(self) -> str:
        """Return the author's continuation: the last ``max_tokens`` tokens."""
        return last_tokens(self.text, self.tokenizer, self.max_tokens)

    @cached_property
    def before(self) -> str:
        """Return the text before the author's continuation."""
        return self.text[: len(self.text) - len(self.ground_truth)]

    @cached_property
    def _tokens_before(self) -> int:
        return self.tokenizer.count(self.before)

    def has(self, context_tokens: int) -> bool:
        """Return whether the text fills that size; from the first that it does not, none is."""
        return 0 < self._story_tokens(context_tokens) <= self._tokens_before

    def context(self, context_tokens: int) -> str:
        """Return the text before the continuation that fills a window of ``context_tokens``.

        It may end in an unfinished sentence (see `trimmed`). Raise DataError if it does not fit.
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
    text: str, tokenizer: Tokenizer, max_context: int, max_tokens: int, instruction: str
) -> Slices:
    """Return ``text`` (from `source_text`) cut for contexts of up to ``max_context`` tokens.

    A text of fewer than 1.2 x ``max_context`` + ``max_tokens`` tokens is repeated to that length,
    as the reference does; the author's continuation may then be in the context.
    """
    overhead = tokenizer.count(instruction) + _MARGIN
    required = needed_tokens(max_context, max_tokens)
    source_tokens = tokenizer.count(text)
    repeated = source_tokens < required
    if repeated:
        text *= required // max(source_tokens, 1) + 1
    reach = _reach(len(text), lambda n: tokenizer.count(text[:n]) > required, required)
    window = pruned(text[:reach], tokenizer, max_context)
    return Slices(window, tokenizer, max_tokens, overhead, source_tokens, repeated)


def needed_tokens(max_context: int, max_tokens: int) -> int:
    """Return the number of tokens from which a text need not be repeated."""
    return int(_SURPLUS * max_context) + max_tokens


def last_tokens(text: str, tokenizer: Tokenizer, most: int) -> str:
    """Return the longest suffix of ``text``, to the character, that has at most ``most`` tokens."""
    end = len(text)

    def count(characters: int) -> int:
        return tokenizer.count(text[end - characters :])

    high = _reach(end, lambda n: count(n) > most, most)
    return text[end - bisect.bisect_right(range(high + 1), most, key=count) + 1 :]


def _reach(length: int, is_over: Callable[[int], bool], tokens: int) -> int:
    """Return a number of characters certain to hold ``tokens`` tokens, at most ``length``."""
    n = max(8 * tokens, 64)
    while n < length and not is_over(n):
        n *= 2
    return min(n, length)


def pruned(text: str, tokenizer: Tokenizer, most: int) -> str:
    """Return the longest prefix of ``text`` that ends at a boundary and has ``most`` tokens or
    fewer.

    If no boundary fits, return the first 2 x ``most`` characters.
    """
    ends = [match.end() for match in _BOUNDARY.finditer(text)]
    if not ends:
        return text[: 2 * most]
    fitting = bisect.bisect_right(ends, most, key=lambda end: tokenizer.count(text[:end]))
    return text[: ends[fitting - 1]] if fitting else text[: 2 * most]


def trimmed(text: str) -> str:
    """Return ``text`` up to its last sentence end, without trailing space if it has none.

    A single full stop after an initial or a digit does not end a sentence. As in the reference, one
    after `Mr` does, and a closing quote after the stop is cut off; blank text stays as it is.
    """
    stripped = text.rstrip() or text
    for match in reversed(list(_STOPS.finditer(stripped))):
        if match[0] == "." and _is_no_end(stripped, match.start()):
            continue
        return stripped[: match.end()]
    return stripped


def _is_no_end(text: str, dot: int) -> bool:
    return text[dot - 1 : dot].isdigit() or bool(_INITIAL.search(text[max(0, dot - 2) : dot]))
