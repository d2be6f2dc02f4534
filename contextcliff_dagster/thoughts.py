"""Removal of a model's reasoning that the server leaves in the text of the answer.

Recognised are tags (``<think>``, ``<thinking>``, ``<reasoning>``, ``<thought>``, ``<seed:think>``,
``[THINK]``, ``<|begin_of_thought|>``, ``<|START_THINKING|>``, ``◁think▷``, ``<unused94>``), also
without the opening tag, which some templates omit; the lines that Ollama, Granite and Apriel write
around thoughts; and OpenAI's harmony channels, whole or with their markers stripped
(``analysis...assistantfinal...``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

TAGS = ("think", "thinking", "reasoning", "thought", "seed:think")
_MARKERS = (
    (r"\[THINK\]", r"\[/THINK\]"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    ("◁think▷", "◁/think▷"),
    (r"<unused94>", r"<unused95>"),
    (r"\A\s*Thinking\.\.\.\s*\n", r"^\.\.\.done thinking\."),
    (r"\A\s*Here(?: is|'s) my thought process:", r"^Here(?: is|'s) my response:"),
    (r"\A\s*Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]"),
    (r"<\|channel\|>(?:analysis|commentary)", r"<\|channel\|>final(?:<\|message\|>)?"),
)
_SOLUTION = re.compile(
    r"<\|(?:begin|end)_of_solution\|>|<\|return\|>|<\|(?:START|END)_RESPONSE\|>"
    r"|\[END FINAL RESPONSE\]|<\|start\|>assistant(?=<\|channel\|>)"
)
_STRIPPED = re.compile(
    r"\A(?:\s*analysis.*?assistant\s*final(?![a-z])|.*?assistantfinal)\s*", re.DOTALL
)
_STRIPPED_HEAD = re.compile(r"\s*analysis(?:[A-Z\"'\u2018\u201c]|[ \t]*\n)")


def without_thoughts(text: str, tags: Sequence[str] = ()) -> tuple[str, bool]:
    """Return ``text`` without its thoughts, and whether the last thought never ends.

    Args:
        tags: names of further tags that enclose thoughts.

    >>> without_thoughts("<think>7 or 9</think>9"), without_thoughts("I see. </think> 9")
    ((' 9', False), (' 9', False))
    """
    text = _STRIPPED.sub("", _SOLUTION.sub("", text), count=1)
    if _STRIPPED_HEAD.match(text):
        return text, True
    opening, closing = _patterns(tuple(tags))
    kept: list[str] = []
    at = 0
    opened, closed = opening.search(text), closing.search(text)
    while opened or closed:
        if opened and not (closed and closed.start() < opened.start()):
            kept.append(text[at : opened.start()])
            closed = closing.search(text, opened.end())
        else:
            kept.clear()  # its opening tag was part of the prompt
        if closed is None:
            return " ".join([*kept, text[opened.start() :] if opened else ""]), True
        at = closed.end()
        if opened and opened.start() < at:  # search again only if this one is used up
            opened = opening.search(text, at)
        closed = closing.search(text, at)
    return " ".join([*kept, text[at:]]), False


@lru_cache(maxsize=16)
def _patterns(tags: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = "|".join(map(re.escape, (*TAGS, *tags)))
    opening = "|".join([rf"<(?:{names})>", *(left for left, _ in _MARKERS)])
    closing = "|".join([rf"</(?:{names})>", *(right for _, right in _MARKERS)])
    flags = re.IGNORECASE | re.MULTILINE
    return re.compile(opening, flags), re.compile(closing, flags)
