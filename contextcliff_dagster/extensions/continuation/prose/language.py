"""Function words and scripts: which language a stretch of text is in.

Function words are closed classes (articles, pronouns, prepositions, conjunctions, auxiliaries):
few, frequent and told apart by language.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
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
        pas au aux ce cette ces son sa ses mais pour sur avec par était sont ou où se leur plus
        l d qu c j n s m à en y on ne si sans sous dans entre chez vers dont tout tous toute toutes
        même comme lorsque quand parce afin cela ceci ils lui leurs notre votre nos vos mon ma mes
        être avoir a ai ont avait peut doit fait aussi très ainsi donc alors car chaque aucun""",
    "German": """der die das den dem des ein eine einen einem einer und ist in zu nicht er sie es
        wir ihr ich sich mit auf für von war sind auch als an aus bei nach wie aber dass hatte
        im am zum zur vom durch um über unter vor bis gegen ohne zwischen während oder wenn weil
        ob denn doch noch nur so sehr kein keine keinen dies diese dieser dieses diesen jede jeder
        man mich mir dich uns ihm ihn ihnen ihre ihren seine seinen mein was wer wo hier dort da
        wird werden wurde wurden kann können muss soll sein haben hat hatten eines alle""",
    "Spanish": """el la los las un una unos unas y es en que de del no se su sus lo le les por con
        para como más pero al fue era son este esta muy ya cuando había
        a o u e ni si sin sobre entre hasta desde hacia también porque aunque donde quien cual cuyo
        esto estos estas ese esa eso esos aquel aquella él ella ellos ellas yo me mi mis tu te nos
        nuestro cada todo todos toda todas otro otra otros ser es está están ha han
        puede debe hay""",
    "Italian": """il lo la gli le un una uno e è in che di del della dei non si con per come ma al
        alla da dal sono era più nel nella questo questa anche quando
        i l d un gli delle degli dello dell dall dalla dalle all agli alle ai nell nei nelle negli
        sul sulla sui su tra fra per o se perché dove chi cui quale quali ciò si ci ne mi ti vi lui
        lei loro io noi voi suo sua suoi sue ogni tutto tutti tutte altro altri essere ha hanno
        può deve stato quello quella quelli così già ancora""",
    "Portuguese": """o a os as um uma e é em que de do da dos das não se com por para como mas ao
        no na foi era são mais seu sua ele ela quando muito
        à às aos nos nas num numa pelo pela pelos pelas sem sobre entre até desde também porque ou
        nem onde quem qual cujo isso isto este esta estes estas esse essa esses essas aquele aquela
        eles elas eu me mim nós lhe seus suas meu minha cada todo todos toda todas outro outra ser
        está estão há pode deve ter tem já""",
    "Dutch": """de het een en is in van dat niet te zijn hij zij ze wij ik je met op voor aan er
        maar om was ook als bij naar uit nog had hun
        of dan dus want omdat wanneer hoewel toen door over onder tussen tegen tot tijdens zonder
        voor vanaf deze dit die daar hier wat wie waar welke hem haar ons u jij jullie men mij mijn
        zich zijn heeft hebben had worden wordt werd kan kunnen moet zal zou geen wel zo al alle
        elk elke andere meer zeer alleen""",
}
FUNCTION_WORDS = {
    "English": frozenset(_ENGLISH.split()),
    **{language: frozenset(words.split()) for language, words in _OTHERS.items()},
}

_LEAST_SHARE = 0.2
_LANGUAGES = tuple(FUNCTION_WORDS)


def function_words(words: Sequence[str], language: str = "English") -> NDArray[np.bool_]:
    """Which of ``words`` (in small letters) are function words; contractions by their first part.

    Raises:
        ValueError: a language that `FUNCTION_WORDS` has not.
    """
    return _memberships(words)[:, _LANGUAGES.index(language)]


def language_of(words: Sequence[str]) -> str | None:
    """The language most of whose function words are among ``words``; None below a fifth."""
    return languages_of(words, len(words), 1)[0] if words else None


def languages_of(words: Sequence[str], width: int, step: int) -> list[str | None]:
    """As `language_of`, of each stretch of ``width`` words, ``step`` words apart."""
    total = np.concatenate((np.zeros((1, len(_LANGUAGES))), _memberships(words).cumsum(axis=0)))
    starts = np.arange(0, len(words) - width + 1, step)
    counts = total[starts + width] - total[starts]
    best = counts.argmax(axis=1)
    enough = counts.max(axis=1, initial=0) >= _LEAST_SHARE * width
    return [_LANGUAGES[one] if there else None for one, there in zip(best, enough, strict=True)]


def script_shares(text: str) -> dict[str, float]:
    """Share of the letters of ``text`` in each script, by the first word of Unicode's names."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if character.isalpha():
            counts[_script(character)] += count
    letters = counts.total()
    return {script: count / letters for script, count in counts.items()}


def _memberships(words: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([_listed(word) for word in words], np.bool_).reshape(-1, len(_LANGUAGES))


@lru_cache(maxsize=1 << 16)
def _listed(word: str) -> tuple[bool, ...]:
    first = word.split("'")[0]
    return tuple(first in listed for listed in FUNCTION_WORDS.values())


@lru_cache(maxsize=4096)
def _script(character: str) -> str:
    return unicodedata.name(character, "UNNAMED").split()[0].split("-")[0]
