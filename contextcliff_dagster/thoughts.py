"""What a model thinks before it answers, where the server leaves it in the text of the answer.

Known are tags (``<think>``, ``<thinking>``, ``<reasoning>``, ``<thought>``, ``<seed:think>``,
``[THINK]``, ``<|begin_of_thought|>``), with the opening one left out as some templates do, and
OpenAI's harmony channels, whole or with their markers stripped (``analysis...assistantfinal...``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

TAGS = ("think", "thinking", "reasoning", "thought", "seed:think")
_MARKERS = (
    (r"\[THINK\]", r"\[/THINK\]"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final(?:<\|message\|>)?"),
)
_SOLUTION = re.compile(r"<\|(?:begin|end)_of_solution\|>|<\|return\|>")
_STRIPPED = re.compile(r"\Aanalysis(?=\S).*?assistant(?:commentary.*?assistant)?final", re.DOTALL)


def without_thoughts(text: str, tags: Sequence[str] = ()) -> tuple[str, bool]:
    """``text`` without its thoughts, and whether the last of them never ends.

    Args:
        tags: further names of tags that thoughts stand in.

    >>> without_thoughts("<think>7 or 9</think>9"), without_thoughts("I see. </think> 9")
    ((' 9', False), (' 9', False))
    """
    text = _STRIPPED.sub("", _SOLUTION.sub("", text), count=1)
    opening, closing = _patterns(tuple(tags))
    kept: list[str] = []
    at = 0
    while (opened := opening.search(text, at)) or closing.search(text, at):
        closed = closing.search(text, opened.end() if opened else at)
        if opened and (early := closing.search(text, at)) and early.start() < opened.start():
            closed, opened = early, None  # its opening tag was part of the prompt
        if opened:
            kept.append(text[at : opened.start()])
        else:
            kept.clear()
        if closed is None:
            return " ".join([*kept, text[opened.start() :] if opened else ""]), True
        at = closed.end()
    return " ".join([*kept, text[at:]]), False


@lru_cache(maxsize=16)
def _patterns(tags: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = "|".join(map(re.escape, (*TAGS, *tags)))
    opening = "|".join([rf"<(?:{names})>", *(left for left, _ in _MARKERS)])
    closing = "|".join([rf"</(?:{names})>", *(right for _, right in _MARKERS)])
    return re.compile(opening, re.IGNORECASE), re.compile(closing, re.IGNORECASE)
