"""Values of parameters and scores as a sentence writes them."""

from __future__ import annotations

import json
from typing import Any

from contextcliff_dagster.experiments.visibility.tasks.parameters import Config
from contextcliff_dagster.experiments.visibility.tasks.scores import Score

_DIGITS = (3, 5, 8, 17)
_MOST = 32


def value_words(value: Any, digits: int = 3) -> str:
    """A value: ``0.1``, ``1,000``, ``"abc"``; long texts are cut."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        written = json.dumps(value, ensure_ascii=False)
        return written if len(written) <= _MOST else f'{written[: _MOST - 2]}…"'
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**7 else f"{value:.3g}"
    if not value or 1e-4 <= abs(value) < 1e7:
        return _grouped(value, digits)
    return f"{value:.{digits}g}"


def _grouped(value: float, digits: int) -> str:
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    after = max(0, digits - whole) if whole else digits - 1 - _exponent(value)
    written = f"{value:,.{min(after, 20)}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def _exponent(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def choice_words(value: Any) -> str:
    """A choice of a parameter, without quotation marks: it is one of ours."""
    return value if isinstance(value, str) else value_words(value)


def change_words(before: Any, after: Any) -> tuple[str, str]:
    """Two different values, with as many digits as tell them apart.

    >>> change_words(0.1, 0.10001)
    ('0.1', '0.10001')
    """
    if isinstance(before, str | bool):
        return choice_words(before), choice_words(after)
    for digits in _DIGITS:
        first, second = value_words(before, digits), value_words(after, digits)
        if first != second:
            return first, second
    return repr(before), repr(after)


def config_words(config: Config) -> str:
    """``C 0.1, max_iter 300``, sorted by name."""
    return ", ".join(f"{name} {choice_words(config[name])}" for name in sorted(config))


def score_words(value: float | None, score: Score) -> str:
    """A share to three digits after the point, an error to four digits in all."""
    if value is None:
        return "none"
    return f"{value:,.4g}" if score.relative or abs(value) >= 10 else f"{value:.3f}"


def joined(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; nothing of nothing."""
    return "".join(parts) if len(parts) < 2 else f"{', '.join(parts[:-1])} and {parts[-1]}"
