"""Whether a reply gives the value that stands at a place in it, by the words around the place."""

from __future__ import annotations

import re

NEAR = 200
"""Characters around a value that decide: reading a reply takes time in proportion to its length."""
_DENIED = re.compile(
    r"(?:\b(?:not|never|no longer|neither|nor|rather than|instead of|except|without|far from|nicht"
    r"|anything but|by no means|cannot be \w+ as|(?:less|more|fewer|greater|higher|lower) than"
    r"|above|below|double|twice"
    r"|half|just as well be|could also be|previously|formerly|originally"
    r"|kein(?:e[mnrs]?)?|pas|non|plutôt que|au lieu de|y no"
    r"|confused? (?:it |this )?with|(?:which |that )?(?:replace[sd]?|supersede[sd]?)"
    r"|(?:at first |first |originally )?(?:i|we) thought"
    r"|(?:up|down|rose|fell|changed) from|compared (?:with|to)|scheduled for"
    r"|(?:supposed|meant|used) to(?: \w+){1,4}"
    r"|(?:earlier|previous|old|former|first|original) \w+ (?:said|stated|was|had|gave|listed))"
    r"|n['\u2019]t)\s+(?:(?:the|a|an|it|of|de|option|was|be)\s+){0,2}[\"'*_(]*$"
    r"|\b(?:previously|formerly|originally|earlier)\s[^.,;]*$",
    re.IGNORECASE,
)
"""Before a value that a reply does not give."""
_TAKEN_BACK = re.compile(
    r"^[\"'*_)]*(?:(?:,|\s(?:and|or|nor))\s[A-H]\b)*\s*(?:(?:is|was|are|would be)"
    r"(?:n['\u2019]t|\s+(?:not|wrong|incorrect|false|ruled out))|can be ruled out"
    r"|in (?:one|the other|another)\b)"
    r"|^[\"'*_)]*\s+if\b"
    r"|^[^.!?]*\bbut (?:that|this|it) (?:is|was|would be) (?:not|wrong|a mistake|an)"
    r"|^[^.!?]*?(?:\b(?:replaced|superseded|corrected|amended) (?:by|to|in)\b"
    r"|(?:\bbut\b|;|\bhowever\b|,\s*so\b)[^.!?]*\b(?:it is|it's|answer is|could|is now|now"
    r"|(?:moved|changed|postponed|extended|raised|lowered) to"
    r"|(?:(?:final|current|amended|correct|actual)\s+\w+|document|text|contract|report)"
    r"\s+(?:is|says|states|gives)))",
    re.IGNORECASE,
)
"""After a value that a reply does not give after all."""
_EITHER = re.compile(
    r"^[\"'*_)]*,?\s*(?:or|oder|ou|o bien|o|versus|vs\.?)\s|^\s*/\s*\w"
    r"|^\s*(?:[-\u2013]|to|bis)\s*(?:[A-Z]{3}\s)?[\d$\u20ac]",
    re.IGNORECASE,
)
_OR = re.compile(
    r"(?:\b(?:or|either|oder|ou|o bien|o|versus|vs\.?|between|from)|\w\s*/)\s*"
    r"(?:(?:the|a|option)\s+)?[\"'*_(]*$|\d%?\s*(?:[-\u2013]|\sto|\sbis)\s*$",
    re.IGNORECASE,
)


def before(text: str, start: int) -> str:
    """What stands before ``start``, near enough to decide."""
    return text[max(start - NEAR, 0) : start]


def refused(text: str, start: int, end: int) -> bool:
    """Whether the reply does not give what is there: "not" before it, "is wrong" after it."""
    return bool(_DENIED.search(before(text, start)) or _TAKEN_BACK.match(text[end : end + NEAR]))


def offered(text: str, start: int, end: int) -> bool:
    """Whether "or" is at either side: one of several that the reply does not choose from."""
    return bool(_EITHER.match(text[end : end + NEAR]) or _OR.search(before(text, start)))
