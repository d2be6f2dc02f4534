"""Readable prose of any length by a grammar of our own: each seed is a text of one author."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_NAMES = (
    "Anna Lund Paul Hale Marta Jonas Elsa Viktor Greta Oskar Ruth Simon Clara Edgar Nora".split()
)
_PLACES = """harbour orchard mill station church market bridge garden quarry school tavern island
    lighthouse forest meadow attic cellar bakery hospital theatre""".split()
_THINGS = """lamp letter coat basket ladder clock kettle map boat key blanket violin ledger rope
    chair candle mirror wagon loaf hammer bottle ring umbrella photograph drum saddle""".split()
_LOOKS = """old green narrow heavy broken quiet bright empty cold crooked patient foolish warm
    yellow tall weary honest dusty clever gentle bitter ragged silver hollow familiar""".split()
_DEEDS = """carried mended sold forgot painted borrowed found hid washed broke bought opened
    measured burned admired returned dropped lifted counted wrapped followed lost""".split()
_WAYS = ["slowly", "again", "twice", "gladly", "alone", "quickly", "badly", "in silence",
         "without a word", "for an hour", "by mistake", "in the rain", "with both hands",
         "after supper", "at dawn", "like a thief", "for nothing", "out of habit"]  # fmt: skip
_TIMES = ["when the rain stopped", "before the bells rang", "as winter came", "while we slept",
          "until the spring", "though it was late", "because nobody asked", "since the storm",
          "after the fair closed", "if the wind held", "once the guests had left",
          "as far as I know", "whatever the doctor advised", "unless my memory fails"]  # fmt: skip
_FEELINGS = ["could not laugh", "was ashamed", "felt younger", "remembered everything",
             "wished for company", "had no answer", "grew impatient", "wanted to go home",
             "hardly listened", "trusted nobody", "understood at last", "pretended to sleep",
             "had never been happier", "began to doubt it"]  # fmt: skip

Drawn = Callable[[Sequence[str]], str]


def _clause(draw: Drawn) -> str:
    thing = f"{draw(['the', 'a', 'his', 'her', 'their', 'my', 'that'])} {draw(_THINGS)}"
    if draw("abc") == "a":
        thing = f"the {draw(_LOOKS)} {draw(_THINGS)}"
    place = f"{draw(['in', 'near', 'behind', 'from', 'beyond', 'outside'])} the {draw(_PLACES)}"
    return draw(
        [
            f"{draw(_NAMES)} {draw(_DEEDS)} {thing} {place}",
            f"{draw(_NAMES)} {draw(_FEELINGS)}",
            f"{draw(['she', 'he', 'we', 'they', 'I'])} {draw(_DEEDS)} {thing} {draw(_WAYS)}",
            f"the {draw(_PLACES)} was {draw(_LOOKS)} and {draw(_LOOKS)}",
            f"{draw(_NAMES)} and {draw(_NAMES)} {draw(_DEEDS)} {thing}",
            f"nothing {place} had seemed so {draw(_LOOKS)}",
            f"{thing} lay {place}",
        ]
    )


def _sentence(draw: Drawn) -> str:
    one, two, three = (_clause(draw) for _ in range(3))
    name, mark = draw(_NAMES), draw(".!?..")
    shape = draw("abcdefghij")
    if shape in "abc":
        said = draw(["said", "cried", "asked", "answered", "whispered"])
        return f'"{_capital(one)}," {said} {name}. "{_capital(two)}{mark}"'
    return _capital(
        {
            "d": f"{one}.",
            "e": f"{one}, and {two}.",
            "f": f"{draw(_TIMES)}, {one}; {two}.",
            "g": f"{one} {draw(_TIMES)}.",
            "h": f"{one}, but {two}, {draw(_TIMES)}, and {three}.",
            "i": f"{draw(_TIMES)}, {one}.",
            "j": f"{one} -- {draw(_TIMES)} -- and {two}.",
        }[shape]
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def tale(seed: int, words: int) -> str:
    """At least so many words in whole sentences, in straight typography."""
    draw = random.Random(seed).choice
    sentences: list[str] = []
    while sum(one.count(" ") + 1 for one in sentences) < words:
        sentences.append(_sentence(draw))
    return " ".join(sentences)


def curly(text: str) -> str:
    """The same text with curly quotation marks and apostrophes, and em dashes."""
    text = re.sub(r'(?<!\S)"', "“", text).replace('"', "”")
    return re.sub(r"(?<=\w)'", "’", text).replace(" -- ", "—")
