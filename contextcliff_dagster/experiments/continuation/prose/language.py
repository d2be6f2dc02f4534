"""Function words and scripts: which language a stretch of text is in.

Function words are closed classes (articles, pronouns, prepositions, conjunctions, auxiliaries):
few, frequent and told apart by language.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

ENGLISH_ARTICLES = frozenset(("a", "an", "the"))
_ENGLISH = """
a an the this that these those i me my mine myself you your yours yourself he him his himself she
her hers herself it its itself we us our ours ourselves they them their theirs themselves who whom
whose which what one ones some any each every either neither both all none no another such same
somebody someone something anybody anyone anything nobody nothing everybody everyone everything
of to in on at by for with from into onto upon about above across after against along among around
before behind below beneath beside between beyond down during except inside near off out outside
over past since through throughout till toward towards under until up within without
and or but nor so yet if because although though unless while whereas whether as than when where
how why not there here then
be am is are was were been being have has had having do does did done doing will would shall should
can could may might must ought
"""
_OTHERS = {
    "French": """le la les un une des du de et est dans que qui il elle nous vous ils elles je ne
        pas au aux ce cette ces son sa ses mais pour sur avec par était sont ou où se leur plus""",
    "German": """der die das den dem des ein eine einen einem einer und ist in zu nicht er sie es
        wir ihr ich sich mit auf für von war sind auch als an aus bei nach wie aber dass hatte""",
    "Spanish": """el la los las un una unos unas y es en que de del no se su sus lo le les por con
        para como más pero al fue era son este esta muy ya cuando había""",
    "Italian": """il lo la gli le un una uno e è in che di del della dei non si con per come ma al
        alla da dal sono era più nel nella questo questa anche quando""",
    "Portuguese": """o a os as um uma e é em que de do da dos das não se com por para como mas ao
        no na foi era são mais seu sua ele ela quando muito""",
    "Dutch": """de het een en is in van dat niet te zijn hij zij ze wij ik je met op voor aan er
        maar om was ook als bij naar uit nog had hun""",
}
FUNCTION_WORDS = {
    "English": frozenset(_ENGLISH.split()),
    **{language: frozenset(words.split()) for language, words in _OTHERS.items()},
}


def function_words(words: Sequence[str], language: str = "English") -> NDArray[np.bool_]:
    """Which of ``words`` (in small letters) are function words; contractions by their first part.

    Raises:
        KeyError: a language that `FUNCTION_WORDS` has not.
    """
    listed = FUNCTION_WORDS[language]
    return np.fromiter((word.split("'")[0] in listed for word in words), np.bool_, len(words))


def language_of(words: Sequence[str], least_share: float = 0.2) -> str | None:
    """The language most of whose function words are among ``words``; None below ``least_share``."""
    if not words:
        return None
    shares = {
        language: float(function_words(words, language).mean()) for language in FUNCTION_WORDS
    }
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= least_share else None


def script_shares(text: str) -> dict[str, float]:
    """Share of the letters of ``text`` in each script, by the first word of Unicode's names."""
    counts: dict[str, int] = {}
    if text.isascii():
        return {"LATIN": 1.0} if any(map(str.isalpha, text)) else {}
    for character in text:
        if character.isalpha():
            script = _script(character)
            counts[script] = counts.get(script, 0) + 1
    letters = sum(counts.values())
    return {script: count / letters for script, count in counts.items()}


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    return unicodedata.name(character, "UNNAMED").split()[0].split("-")[0]
