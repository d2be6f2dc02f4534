"""Labels of scales: ``8k`` is a document whose JSON lines have 8,000 tokens."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([kKmM]?)")
_UNIT = {"": 1, "k": 1_000, "m": 1_000_000}
LEAST_TOKENS, MOST_TOKENS = 200, 10_000_000


def scale_tokens(label: str) -> int:
    """Return the tokens of a label.

    >>> scale_tokens("8k"), scale_tokens("1.5M"), scale_tokens("900")
    (8000, 1500000, 900)

    Raises:
        ValueError: it is no label, or out of any reach.
    """
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        raise ValueError(f"scale {label!r} is no number of tokens; write 8k, 100k or 1M")
    tokens = round(float(match[1]) * _UNIT[match[2].lower()])
    if not LEAST_TOKENS <= tokens <= MOST_TOKENS:
        raise ValueError(
            f"scale {label!r} is out of reach; write one from {LEAST_TOKENS} to "
            f"{scale_label(MOST_TOKENS)} tokens"
        )
    return tokens


def scale_label(tokens: int) -> str:
    """Return the label of so many tokens.

    >>> scale_label(8000), scale_label(1_500_000), scale_label(2**14), scale_label(950)
    ('8k', '1.5M', '16.384k', '950')
    """
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if tokens >= size and round(tokens / size, 3) * size == tokens:
            return f"{tokens / size:.3f}".rstrip("0").rstrip(".") + unit
    return str(tokens)


def parse_scale(text: str) -> list[str]:
    """Return the labels that a scale or a range (``1k-64k``, in doublings) names.

    The end of a range is always in it.

    >>> parse_scale("1k-8k"), parse_scale("500K"), parse_scale("1k-3k")
    (['1k', '2k', '4k', '8k'], ['500k'], ['1k', '2k', '3k'])

    Raises:
        ValueError: it is neither; a range goes down.
    """
    first, dash, last = text.partition("-")
    low = scale_tokens(first)
    if not dash:
        return [scale_label(low)]
    high = scale_tokens(last)
    if high < low:
        raise ValueError(f"the range {text!r} goes down; write the smaller scale first")
    labels = []
    while low < high:
        labels.append(scale_label(low))
        low *= 2
    return [*labels, scale_label(high)]
