"""The context sizes that Context-Tester measures."""

from __future__ import annotations

from itertools import pairwise

from contextcliff_dagster.contracts import StudyError

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
