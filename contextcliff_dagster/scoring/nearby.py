"""What the words around a value in a reply say of it: whether it is given, and as what is asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, TypeVar

from contextcliff_dagster.scoring.quantities import Day, Quantity

NEAR = 200
"""Characters around a value that decide: reading a reply takes time in proportion to its length."""
_FUNCTION_WORDS = frozenset(
    "the and for are was were has have had does did which what who whom whose when where why how "
    "many much this that these those with from into not its one any all under".split()
)
_STEM = 5
_CLAUSE = re.compile(r"[,;:]\s|\s(?:and|but|while|whereas|und|et|y)\s", re.IGNORECASE)
_BESIDE = re.compile(rf"{_CLAUSE.pattern}|\s\(", re.IGNORECASE)
_NAME = re.compile(
    r"\b(?:is|are|was|were|ist|est|es)\s+(?:[a-z]+\s+){0,6}([^\W\d_a-z]\w+)(?!\w|\s*\d)"
)
_BUT = re.compile(r"\b(?:but|however|aber|mais|pero)\s(?:it |he |she |they )?$", re.IGNORECASE)
_ROSE = (
    r"(?:up|down|rose|fell|went|grew|(?:chang|mov|increas|decreas|reduc|rais|lower|extend|shorten"
    r"|relocat|switch)ed)(?: (?:up|down|in \w+))?"
)
_FROM_TO = re.compile(rf"\b{_ROSE} from\s[^;!?]{{1,60}}\sto\s*$", re.IGNORECASE)
_DENIED = re.compile(
    r"(?:\b(?:not|never|no longer|neither|nor|rather than|instead of|except|without|far from|nicht"
    r"|anything but|by no means|cannot be \w+ as"
    r"|(?<!\bno )(?<!\bnot )(?:less|more|fewer|greater|higher|lower) than"
    r"|above|below|double|twice"
    r"|half|just as well be|could also be|previously|formerly|originally"
    r"|kein(?:e[mnrs]?)?|pas|non|plutôt que|au lieu de|no est[aá]|no es|y no"
    r"|none of|excluding|(?:excluded|not covered):?"
    r"|confused? (?:it |this )?with|(?:which |that )?(?:replace[sd]?|supersede[sd]?)"
    r"|(?:at first |first |originally )?(?:i|we) thought"
    rf"|{_ROSE} (?:from|out of)|left|near|outside|close to|other than|unlikely"
    r"|compared (?:with|to)|scheduled for"
    r"|(?:supposed|meant|used) to(?: \w+){1,4}"
    r"|(?:earlier|previous|old|former|first|original) \w+ (?:said|stated|was|had|gave|listed))"
    r"|n['\u2019]t)\s+"
    r"(?:(?:the|a|an|it|of|de|option|was|be|in|at|from|within|on|en|im|à|la)\s+){0,2}[\"'*_(]*$"
    r"|\b(?:not|neither|nicht|never)\s+[\w-]+,?\s+(?:or|nor|oder)\s+$|(?:不是|不在|并非)\s*$"
    r"|\b(?:previously|formerly|originally|earlier)\s[^.,;]*$",
    re.IGNORECASE,
)
"""Before a value that a reply does not give."""
_TAKEN_BACK = re.compile(
    r"^[\"'*_)]*(?:(?:,|\s(?:and|or|nor))\s[A-H]\b)*\s*(?:(?:is|was|are|would be)"
    r"(?:n['\u2019]t|\s+(?:not|wrong|incorrect|false|ruled out))|can be ruled out"
    r"|in (?:one|the other|another)\b)"
    r"|^[\"'*_)]*\s+if\b|^ではなく"
    r"|^[^.!?]*\bbut (?:that|this|it) (?:is|was|would be) (?:not|wrong|a mistake|an)"
    r"|^[^.!?\n]*?(?:\b(?:replaced|superseded|corrected|amended) (?:by|to|in)\b"
    r"|(?:\bbut\b|;|\bhowever\b|,\s*so\b)[^.!?\n]*\b(?:answer is|could|is now|now"
    r"|(?:moved|changed|postponed|extended|raised|lowered) to"
    r"|(?:it is|it's|(?:(?:final|current|amended|correct|actual)\s+\w+"
    r"|document|text|contract|report)\s+(?:is|says|states|gives))"
    r"(?!\s+(?:the|an?|in|on|at|from|also|only|still|so|stated|given|exceptions?|payable|due)\b)))",
    re.IGNORECASE,
)
"""After a value that a reply does not give after all."""
_EITHER = re.compile(
    r"^[\"'*_)]*,?\s*(?:or|oder|ou|o bien|o|versus|vs\.?)\s"
    r"(?!(?:more|less|older|later|fewer)\b)"
    r"|^\s*/\s*(?!(?:month|year|week|day|hour|unit|monat|jahr|tag|mois|mes|año)\b)\w"
    r"|^\s*(?:[-\u2013]|to|bis)\s*(?:[A-Z]{3}\s)?[\d$\u20ac]",
    re.IGNORECASE,
)
_OR = re.compile(
    r"(?:\b(?:or|either|oder|ou|o bien|o|versus|vs\.?|between)|\w\s*/)\s*"
    r"(?:(?:the|a|option)\s+)?[\"'*_(]*$|\d%?\s*(?:[-\u2013]|\sto|\sbis)\s*$",
    re.IGNORECASE,
)


PLACE_WORD = (
    r"(?:section|sec|page|clause|article|art|chapter|paragraph|table|appendix|line"
    r"|abschnitt|seite|artikel|ziffer)\b\.?|§+"
)
_PLACE_WORD = re.compile(rf"(?<!\w)({PLACE_WORD})\s*$", re.IGNORECASE)
_UNSTATED = re.compile(
    r"(?:\b(?:not|never)\s+|n['\u2019]t\s+)(?:\w+ly\s+)?"
    r"(?:stated?|specif(?:y|ied)|mention(?:ed)?|given|say|disclosed?|provided?)\b"
    r"|\bno (?:information|mention)\b|\bunknown\b",
    re.IGNORECASE,
)
_ABSTAINS = re.compile(
    rf"\W*(?:unfortunately|sorry)?,?\s*(?:i (?:do not|don['\u2019]t) know|i(?:'m| am) not sure"
    r"|(?:it|this|that|the (?:document|text|passage|context|contract))"
    rf"\s(?:\w+\s)?(?:{_UNSTATED.pattern}))",
    re.IGNORECASE,
)
_YET = re.compile(
    r"\b(?:but|however|though|yet)\b(?!,?\s(?:\w+\s){0,3}(?:typical|usual|general|common)ly\b)",
    re.IGNORECASE,
)


class Place(NamedTuple):
    """Words and where they stand in a text."""

    words: str
    start: int
    end: int


_Placed = TypeVar("_Placed", Place, Quantity, Day)


def before(text: str, start: int) -> str:
    """What stands before ``start``, near enough to decide."""
    return text[max(start - NEAR, 0) : start]


def refused(text: str, start: int, end: int) -> bool:
    """Whether the reply does not give what is there: "not" before it, "is wrong" after it."""
    return bool(_DENIED.search(before(text, start)) or _TAKEN_BACK.match(text[end : end + NEAR]))


def names_a_place(text: str, one: Quantity, question: str) -> bool:
    """Whether it is the number of a section or a page, and the question asks for none."""
    word = _PLACE_WORD.search(before(text, one.start))
    return word is not None and word[1].lower().strip(".") not in question.lower()


def unstated(stated: str, reply: str) -> bool:
    """Whether the reply says that the document does not tell, and gives nothing after "but"."""
    said = [(_UNSTATED.search(stated), stated), (_ABSTAINS.match(reply), reply)]
    return any(found and not _YET.search(text, found.end()) for found, text in said)


def offered(text: str, start: int, end: int) -> bool:
    """Whether "or" is at either side: one of several that the reply does not choose from."""
    left = before(text, start)
    either = _OR.search(left) and not _FROM_TO.search(left)
    return bool(either or _EITHER.match(text[end : end + NEAR]))


def of_clause(text: str, question: str, found: Sequence[_Placed]) -> list[_Placed]:
    """Those in the clause that shares most words with the question; all where none shares any."""
    cuts = [0, *(cut.end() for cut in _CLAUSE.finditer(text)), len(text)]
    asked = content_words(question)
    clauses = [
        (
            len(asked & content_words(text[low:high])),
            bool(_BUT.search(before(text, low))),
            -low,
            inside,
        )
        for low, high in pairwise(cuts)
        if (inside := [one for one in found if low <= one.start < high])
    ]
    shared, _, _, inside = max(clauses, key=itemgetter(0, 1, 2), default=(0, False, 0, []))
    return inside if shared else list(found)


def elsewhere(text: str, question: str, places: Sequence[Place]) -> bool:
    """Whether all ``places`` are outside the clause of what is asked, which states another name."""
    cuts = [0, *(cut.end() for cut in _BESIDE.finditer(text)), len(text)]
    asked = content_words(question)
    shared = {
        (low, high): (
            len(asked & content_words(text[low:high])),
            bool(_BUT.search(before(text, low))),
        )
        for low, high in pairwise(cuts)
    }
    (low, high), most = max(shared.items(), key=itemgetter(1), default=((0, 0), (0, False)))
    named = _NAME.findall(text, low, high) if most[0] else []
    return any(name not in question for name in named) and not any(
        low <= place.start < high or value == most
        for place in places
        for (a, b), value in shared.items()
        if a <= place.start < b
    )


def content_words(text: str) -> frozenset[str]:
    """Words by which a sentence is recognised as being about what was asked, in lower case."""
    words = re.findall(r"[^\W_]+", text.lower())
    words = [word for word in words if len(word) > 2 and word not in _FUNCTION_WORDS]
    return frozenset(word[:_STEM] for word in words)
