"""Scales, and a solver for data whose rendering has a given number of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    Benchmark,
    BenchmarkName,
    Evidence,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for
from contextcliff_dagster.extensions.utilization.rendering.sentences import Format
from contextcliff_dagster.extensions.utilization.rendering.structured import render

_LABEL = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kKmM]?)")
_UNIT = {"": 1, "k": 1_000, "m": 1_000_000}
LEAST_TOKENS, MOST_TOKENS = 200, 10_000_000


def scale_tokens(label: str) -> int:
    """Return the number of tokens that a scale label stands for.

    >>> scale_tokens("8k"), scale_tokens("1.5M"), scale_tokens("900")
    (8000, 1500000, 900)

    Raises:
        ValueError: ``label`` is not a scale label, or out of range.
    """
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        raise ValueError(f"scale {label!r} is not a number of tokens; use e.g. 8k, 100k or 1M")
    tokens = round(float(match[1]) * _UNIT[match[2].lower()])
    if not LEAST_TOKENS <= tokens <= MOST_TOKENS:
        raise ValueError(
            f"scale {label!r} is out of range; choose one from {LEAST_TOKENS} to "
            f"{scale_label(MOST_TOKENS)} tokens"
        )
    return tokens


def scale_label(tokens: int) -> str:
    """Return the scale label of a number of tokens.

    >>> scale_label(8000), scale_label(1_500_000), scale_label(2**14), scale_label(950)
    ('8k', '1.5M', '16.384k', '950')
    """
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if tokens >= size and round(tokens / size, 3) * size == tokens:
            return f"{tokens / size:.3f}".rstrip("0").rstrip(".") + unit
    return str(tokens)


def parse_scale(text: str) -> list[str]:
    """Return the labels of a scale or of a range such as ``1k-64k``, in doublings.

    A range always includes its end.

    >>> parse_scale("1k-8k"), parse_scale("500K"), parse_scale("1k-3k")
    (['1k', '2k', '4k', '8k'], ['500k'], ['1k', '2k', '3k'])

    Raises:
        ValueError: ``text`` is neither a scale nor an ascending range.
    """
    first, dash, last = text.partition("-")
    low = scale_tokens(first)
    if not dash:
        return [scale_label(low)]
    high = scale_tokens(last)
    if high < low:
        raise ValueError(f"scale range {text!r} goes down; write the smaller scale first")
    labels = []
    while low < high:
        labels.append(scale_label(low))
        low *= 2
    return [*labels, scale_label(high)]


TOLERANCE = 0.02
"""Largest relative deviation of a document's tokens from the scale."""
_SHORTEST, _HALF_A_RECORD = 1_000, 25
"""Length below which a document may miss its scale by half a record, and half a record's tokens."""
_SMALL, _LARGE = (40.0, 400.0), (400.0, 4_000.0)
"""Numbers of records of the two sample documents that calibrate short and long documents."""
_SHORT_TOKENS = 40_000
_FEW_QUESTIONS = 4
"""Number of questions that fit into every document."""
_TRIALS = 16
_STEPS, _DRAWS = 24, 4
"""Number of sizes tried between two trials, and of documents tried per size."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for data of ``benchmark`` with ``tokens`` tokens when rendered in ``format``."""

    benchmark: BenchmarkName
    tokens: int
    seed: int
    evidence: Evidence = "growing"
    questions: int = 4
    format: Format = "jsonl"


class Solved(NamedTuple):
    """Data that reach a scale, with the rendered text and its number of tokens."""

    data: Benchmark
    text: str
    tokens: int


@dataclass(slots=True)
class ScaleSolver:
    """A solver for the number of records; the same wish always gives the same document.

    ``count`` returns a text's tokens.
    """

    count: Callable[[str], int]
    _points: dict[tuple[object, ...], tuple[float, int] | None] = field(default_factory=dict)

    def solve(self, wish: Wish) -> Solved:
        """Return data whose rendering has the tokens of ``wish``, within `most_off`.

        The first number of records is extrapolated from two documents of fixed sizes; the next
        ones are interpolated between trials below and above the target.

        Raises:
            StudyError: no number of records comes close enough, or the scale is too small.
        """
        below: tuple[float, int] | None = None
        above: tuple[float, int] | None = None
        best: Solved | None = None
        records = self._first_guess(wish)
        for _ in range(_TRIALS):
            solved = self._trial(wish, records)
            best = _nearer(best, solved, wish)
            if solved is not None and _miss(solved, wish) <= most_off(wish.tokens):
                return solved
            if solved is None or solved.tokens < wish.tokens:
                below = (records, 0 if solved is None else solved.tokens)
            else:
                above = (records, solved.tokens)
            if below and above:
                if above[0] - below[0] < 1.0:
                    break
                share = (wish.tokens - below[1]) / (above[1] - below[1])
                records = below[0] + (share if below[1] else 0.5) * (above[0] - below[0])
            elif solved is None:
                records = 1.5 * records + 2.0
            else:
                records = max(1.0, records * wish.tokens / solved.tokens)
        if below and above and wish.tokens <= _SHORT_TOKENS:
            # Short documents grow in steps of a record or more, so try each size in between.
            for number in range(_DRAWS * (_STEPS + 1)):
                draw, step = divmod(number, _STEPS + 1)
                if not step and best is not None and _miss(best, wish) <= most_off(wish.tokens):
                    break
                records = below[0] - 2.0 + step / _STEPS * (above[0] - below[0] + 4.0)
                best = _nearer(best, self._trial(wish, max(1.0, records), draw), wish)
            if best is not None and _miss(best, wish) <= most_off(wish.tokens):
                return best
        raise _out_of_reach(wish, best)

    def _first_guess(self, wish: Wish) -> float:
        """Return a number of records, extrapolated from two documents of fixed sizes and seed.
        Earlier trials are ignored, or a document would depend on what the store already had."""
        sizes = _LARGE if wish.tokens > _SHORT_TOKENS else _SMALL
        points = [point for size in sizes if (point := self._point(wish, size)) is not None]
        if not points:
            raise _out_of_reach(wish, None)
        (few, least), (many, most) = points[0], points[-1]
        if most <= least:
            return max(1.0, few * wish.tokens / max(least, 1))
        return max(1.0, few + (many - few) * (wish.tokens - least) / (most - least))

    def _point(self, wish: Wish, records: float) -> tuple[float, int] | None:
        key = (wish.benchmark, wish.evidence, wish.format, wish.questions, records)
        if key not in self._points:
            solved = self._trial(replace(wish, seed=0), records)
            self._points[key] = None if solved is None else (records, solved.tokens)
        return self._points[key]

    def _trial(self, wish: Wish, records: float, draw: int = 0) -> Solved | None:
        """Return a document with ``records`` records; None if they cannot hold the questions."""
        try:
            data = generate(
                wish.benchmark,
                wish.seed,
                {**parameters_for(wish.benchmark, records), **({"draw": draw} if draw else {})},
                evidence=wish.evidence,
                questions=wish.questions,
            )
        except ValueError:
            return None
        text = render(data, wish.format).text
        return Solved(data, text, self.count(text))


def most_off(tokens: int) -> float:
    """Return the allowed deviation from a scale in tokens: 2%, or half a record below 1,000."""
    return _HALF_A_RECORD if tokens < _SHORTEST else TOLERANCE * tokens


def _miss(solved: Solved, wish: Wish) -> int:
    return abs(solved.tokens - wish.tokens)


def _nearer(best: Solved | None, candidate: Solved | None, wish: Wish) -> Solved | None:
    if best is None or candidate is None:
        return best or candidate
    return min(best, candidate, key=lambda solved: _miss(solved, wish))


def _out_of_reach(wish: Wish, best: Solved | None) -> StudyError:
    text = f"A {wish.benchmark} document of {wish.tokens:,} tokens as {wish.format}"
    if best is None:
        return StudyError(
            f"{text} cannot hold {wish.questions} questions; lower `questions` or raise `scales`."
        )
    crowded = wish.questions > _FEW_QUESTIONS and best.tokens > wish.tokens
    return StudyError(
        f"{text} is out of reach: the nearest one (seed {wish.seed}) has {best.tokens:,} tokens, "
        f"but at most {most_off(wish.tokens):,.0f} tokens of deviation are allowed; "
        + (f"lower `questions` ({wish.questions}) or " if crowded else "")
        + "choose another scale of 1k or more."
    )
