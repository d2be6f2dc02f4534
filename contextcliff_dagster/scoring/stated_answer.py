r"""Stated answer: where a reply states its answer, and which lettered option it chooses.

The rules are few, and the same at every length. The first that applies, in this order:

1. a JSON object: the value of the key ``answer``, ``result`` or the like, else of the one that
   shares most words with the question and gives no reason or source; of a table the last cell;
2. what follows the last label ``Answer:`` (in other languages, too), to the end of the line;
3. ``\boxed{...}``, or what a code fence around the answer holds;
4. the last sentence if it alone is a field with a short value (``Category: low``);
5. a value by itself at the beginning or after a colon, before an explanation: at most `SHORT` words
   without a verb;
6. the last text in bold;
7. the last sentence that says "the answer is", else the last that begins with "so" or "therefore",
   else with "it is", else the one that shares most words with the question, the last of equal ones.

The question itself, if repeated, everything before a correction ("Wait, no: ") and sentences that
ask are ignored. A list of candidates states no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeVar

from contextcliff_dagster.scoring.normalize import fold_forms, word_count
from contextcliff_dagster.scoring.parse import load_json
from contextcliff_dagster.scoring.quantities import Day, Quantity, days

NEAR = 200
"""Characters around a value that are searched, so that time stays linear in the reply's length."""
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
"""Words before a value that show that the reply denies it."""
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
"""Words after a value that show that the reply retracts it."""
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

_OPEN, _CLOSE = r"[\s\"'*_`(\[{$「【]*(?:\\boxed\{)?", r"[)\]}*_`\"'.,:;!?，。、」】]"
_END = r"(?!['\u2019]?[A-Za-z0-9_])"  # "I'd" and "A's" are words
_ALONE = re.compile(rf"{_OPEN}([A-Za-z])(?:{_CLOSE}|\$|\s)*")
_LEADING = re.compile(rf"{_OPEN}([A-Z]){_END}(?:{_CLOSE}|\s*[\n\u2013\u2014-]|\s*$)")
_ANNOUNCED = (
    r"(?:\b(?i:(?:answer|option|choice|choose|chose|select|pick)(?:ed|s)?)\b"
    r"(?:\s+(?i:is|are|was|were|would be|must be|should be|letters?|options?|choices?))*"
    r"|答案(?:应该|應該)?[是为為选選]?|[选選](?:择|擇|项|項)?|正解は|答えは|정답은)"
    rf"\s*[:=]?{_OPEN}"
)
"""Words that announce a choice. "A" and "I" are also ordinary words: see `_is_word`."""
_STATED = re.compile(rf"{_ANNOUNCED}([A-Z]){_END}")
_ANOTHER = re.compile(
    r"[)\]}*_`\"'.]*\s*(?:,|/|&|，|、|\bor\b|\band\b|[或和与])[\s\"'*_(\[]*([A-Z])" + _END
)
_GOES_ON = re.compile(
    r"\s+(?!(?:because|since|as|for|due|is|are|was|may|might|and|or)\b|\()[A-Za-z]"
)
_SINGLE = re.compile(rf"(?<![A-Za-z0-9_.'\u2019&-])([A-HJ-Z]){_END}(?!\.[A-Z]|[&-])")
_SOME = r"[\"'*_(\[]*(?<![A-Za-z0-9])[A-Z](?![A-Za-z0-9])[\"'*_)\]]*"
_LIST = rf"{_SOME}(?:(?:\s*[,/&]\s*|,?\s+(?:and|or|nor)\s+){_SOME})*"
_REJECTED = re.compile(
    r"(?:(?i:\b(?:not|neither|nor|except|eliminate|reject|rule out)\b|n['\u2019]t\b)"
    rf"(?:\s+(?i:be|options?|answers?|choices?))?\s+|不[是选選]\s*){_LIST}"
    rf"|{_LIST}(?:\s+(?:is|are|was|were)(?:\s+(?:both|all|also|clearly))*(?:n['\u2019]t\b|"
    r"\s+(?:not|wrong|incorrect|false)\b)|\s*(?:不正[确確]|不[对對]|[错錯]))"
)

_BETWEEN = r"(?:[\s,;/&+，、和与及)\](\[*_.]|\band\b)*"
_SEVERAL_OF = "ABCDEFGH"
_SEVERAL = rf"[A-H](?:{_BETWEEN}[A-H]{_END}|[A-H])*"
_ONLY_LETTERS = re.compile(rf"{_OPEN}({_SEVERAL})(?:{_CLOSE}|\$|\s)*")
_STATED_LETTERS = re.compile(rf"{_ANNOUNCED}({_SEVERAL}){_END}")
_LEADING_LETTERS = re.compile(rf"(?i:both\s)?{_OPEN}([A-H](?:{_BETWEEN}[A-H]{_END})+)")


def chosen_letter(answer: str, options: str = ascii_uppercase) -> str | None:
    """Return the letter of ``options`` that ``answer`` chooses; None if it names none, or two.

    It is a single letter (``b``), a letter that begins the answer (``B) Paris``), or the last one
    that the answer announces (``I first thought of A, but the answer is B``). A letter that the
    reply calls wrong counts only if no other is chosen.

    >>> [chosen_letter(answer) for answer in ("b", "B) Paris", "A or B", "the answer is C.")]
    ['B', 'B', None, 'C']
    """
    answer = fold_forms(answer)
    text = _REJECTED.sub(" ", answer)
    return _chosen(text, options) or (None if _singles(text, options) else _chosen(answer, options))


def single_letter(answer: str, options: str = ascii_uppercase) -> str | None:
    """Return the only capital of ``options`` that stands alone in ``answer`` and is not called
    wrong; None if there is none or more than one. The words "A" and "I" never count.

    >>> [single_letter(one) for one in ("It's B", "A man", "A is wrong, C is right", "B or C")]
    ['B', None, 'C', None]
    """
    letters = _singles(_REJECTED.sub(" ", fold_forms(answer)), options)
    return letters.pop() if len(letters) == 1 else None


def _singles(answer: str, options: str) -> set[str]:
    letters = {match[1] for match in _SINGLE.finditer(answer) if not _is_word(answer, match)}
    return letters & set(options)


def _chosen(answer: str, options: str) -> str | None:
    if (letter := _ALONE.fullmatch(answer)) and letter[1].upper() in options:
        return letter[1].upper()
    announced = [mention for mention in _STATED.finditer(answer) if not _is_word(answer, mention)]
    matches = [mention for mention in announced if mention[1] in options]
    match = matches[-1] if matches else _LEADING.match(answer)
    if match is None or match[1] not in options or _names_another(answer, match, options):
        return None
    return match[1]


def chosen_letters(answer: str) -> frozenset[str]:
    """Return all letters (A-H) that ``answer`` chooses, for questions with several right options.

    >>> [sorted(chosen_letters(one)) for one in ("BD", "B, D", "B and D", "B) yes", "B or D")]
    [['B', 'D'], ['B', 'D'], ['B', 'D'], ['B'], []]
    """
    answer = _REJECTED.sub(" ", text := fold_forms(answer))
    lines = [_LEADING.match(line) for line in answer.splitlines() if line.strip()]
    if len(lines) > 1 and all(lines):
        return frozenset(match[1] for match in lines if match)
    if match := _ONLY_LETTERS.fullmatch(answer):
        return frozenset(re.findall(r"[A-H]", match[1]))
    matches = list(_STATED_LETTERS.finditer(answer))
    for match in [*matches[-1:], _LEADING_LETTERS.match(answer)]:
        letters = re.findall(r"[A-H]", match[1]) if match else []
        if match and len(letters) > 1 and not _names_another(answer, match, _SEVERAL_OF):
            return frozenset(letters)
    letter = chosen_letter(text, _SEVERAL_OF) or single_letter(answer, _SEVERAL_OF)
    return frozenset((letter,)) if letter else frozenset()


def _names_another(answer: str, match: re.Match[str], options: str) -> bool:
    rival = _ANOTHER.match(answer, match.end(1))
    return rival is not None and rival[1] in options and not _is_word(answer, rival)


def _is_word(answer: str, match: re.Match[str]) -> bool:
    return match[1] in "AI" and _GOES_ON.match(answer, match.end(1)) is not None


SHORT = 6
_LEAST_REPEATED = 4
"""Minimum number of a question's words that count as repeated by a reply."""
_MARKS = "*_ \"'\u201c\u201d\u00ab\u00bb`"
_DASH = re.compile(r"\s[-\u2013\u2014]\s(?!(?:[A-Z]{3}\s)?[\d$\u20ac\u00a3])|\s\(")
_BRIEF = re.compile(r"\S+(?:\s[^\s;]+){0,2}(?=;\s)")
_SUBJECT = re.compile(
    r"the [^(]*\([^()]*\)\s*"
    r"(?::|(?:is|are|was|were|sets?|states|says|provides|requires|gives|has)\b)",
    re.IGNORECASE,
)
"""A subject, which is not a value even if an aside follows it: "The fee (Section 4) is"."""
_PLACE = re.compile(rf"\W*({PLACE_WORD})\s*\d[\w.]*\W*$", re.IGNORECASE)
_SOURCE = re.compile(r"\b(?:according to|based on|as per|per|see)\s$", re.IGNORECASE)
_POINTS = re.compile(
    r"\W*(?:see\b|(?:this|that|it) (?:is|was) (?:stated|given|mentioned|found|set out)\b"
    rf"|(?:this|that|it) is (?:on|in) {PLACE_WORD})",
    re.IGNORECASE,
)
"""A sentence that only refers to a place in the document."""
_ALTERNATIVES = re.compile(r"\b(?:or|oder|ou|one of)\b|(?<!\w)A\s?[).:]", re.IGNORECASE)
_TABLE_ROW = re.compile(r"\|(.+)\|\s*$")
_FIELD = re.compile(r"\W*[^\W\d][\w ()/-]{0,40}?(?<!\s[A-H])\W{0,3}:\W{0,3}\s(?P<value>\S.*)$")
_ASIDE = re.compile(
    r"reason|explan|evidence|source|note|confiden|question|thought|analysis|page|section|quote",
    re.I,
)
_KEYS = ("answer", "final_answer", "result", "value", "response", "output", "antwort", "respuesta")
_LABEL = re.compile(
    r"(?:^|(?<=[\s*_#>(\[]))(?:the )?(?:(?:final|short|direct|correct) )?"
    r"(?:answer|result|conclusion|antwort|ergebnis|réponse|respuesta|risposta|resposta"
    r"|(?:最终|最終)?答案|回答|答え|정답)(?: corretta| correcta| correcte| is| ist| est| es)?"
    r"[*_\s]*[:\uff1a][*_\s]*"
    r"|^[*_# ]*(?:the )?(?:(?:final|short|direct|correct) )?answer[*_# ]*\n",
    re.IGNORECASE | re.MULTILINE,
)
_NEXT_TURN = re.compile(r"\n\s*\n(?:Question|Human|User)\s*:[^\n]*\w")
_LATEX = re.compile(
    r"(?<![\w\\$])\$([^$\n]{0,60}[\d%}])\$(?![\d$])|\\(?:text|mathrm|mathbf)\{([^{}]*)\}"
)
_NO_WORD = re.compile(r"~~(?!~)[^~\n]+~~(?!~)|</?answer>|\\(?=[%$,])|(?<=\d)\{(?=,\})|(?<=\d\{,)\}")
_BOXED = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_FENCE = re.compile(r"(```|~~~)[^\n`~]*\n(.*?)\n?\s*\1", re.DOTALL)
_BOLD = re.compile(r"(?:\*\*(.+?)\*\*|__(.+?)__)(?!\s*:)", re.DOTALL)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b[A-Z]\.)(?<!\b(?:No|Nr|Dr|Mr|St)\.)(?<!\b(?:Art|Mrs|Inc|Ltd|Sec|e\.g|i\.e)\.)"
    r"(?<!\b(?:Ms|vs)\.)(?<!\bv\.)(?<!\b(?:Gov|Gen|Rev|Sen)\.)(?<!\b(?:Prof|Capt|Sept)\.)"
    r"(?<!\b(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\.)"
    r"[\"'*_)\]]*\s+(?=[\"'*_(\[]*[^\W_a-z])(?!(?:J[aä]n|Feb|M[aä]rz|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov"
    r"|Dez)\w*\s\d)|\n+|(?<=[。！？])"
)
_ANSWERS = re.compile(
    r"\b(?:the |my |la |die |el )?(?:(?:final|correct|right) )?"
    r"(?:answer|option|choice|antwort|réponse|respuesta)"
    r"(?: (?:is|would be|must be|ist|lautet|est|es)\b|:)"
    r"|\bi(?:'d| would)? (?:choose|pick|select|go with|opt for)\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"(?:so|therefore|thus|hence|consequently|accordingly|in conclusion|in short|overall|finally"
    r"|to sum up|conclusion|this means|that means|that leaves|daher|somit|folglich|deshalb"
    r"|donc|ainsi|par conséquent|por lo tanto|así que|entonces|en conclusión)\b|因此|所以|따라서",
    re.IGNORECASE,
)
_IT_IS = re.compile(
    r"(?:it|that|this)(?:'s| is| was| would be)\s+"
    r"(?!not\b|stated|mentioned|given|found|listed|said|shown|in\b|from\b|on\b|because|clear)",
    re.IGNORECASE,
)
_CANDIDATES = re.compile(
    r"\b(?:possible|potential|candidate) (?:answers?|values?|options?|matches)\b"
    r"|\b(?:these|following|several) candidates:",
    re.IGNORECASE,
)
_NO_VALUE = re.compile(
    r"\b(?:this|typically|usually|i|i'm|i'll|let|let's|me|we|you|you're|sure|certainly|course|okay|ok|great|good|thanks"
    r"|thank|hello|hi|happy|absolutely|definitely|will|would|can|may|must|sorry|apologi[sz]e|apologies|step|first|next|here|is|are|was|were|has|have|had|does"
    r"|do|contains?|mentions?|says?|states?|lists?|names?|shows?|refers?|gives|makes|equals|totals|find|check|look|see|need"
    r"|document|text|passage|ist|sind|est|es|son)\b",
    re.IGNORECASE,
)
_QUESTION_MARK = re.compile(r"^[^\w\n]*Q\s*:", re.MULTILINE)
_ANSWER_MARK = re.compile(r"^[^\w\n]*A\s*:\W*", re.MULTILINE)
_CORRECTS = re.compile(
    r"(?:\b(?:no, sorry|correction|scratch that|i misread|on second thou?ghts?|actually, no)\b"
    r"|(?:^|[.!?…\u2013\u2014-]\s*)(?:hmm,?\s)?(?:wait|hold on|actually)"
    r"(?=\s*(?:[,.:!…\u2014-]|no\b)))"
    r"[^.!?:,]{0,200}[.!?:,]+(?:\s*no\b[\s,:.]*)?\s*(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_LETTERED = re.compile(r"[*_(\[]*(?:[Oo]ption\s+)?[A-Ha-h](?:[).:]|\s*$)")
OPTIONS = re.compile(r"(?<!\w)A\s?[).:]")
_BULLET = re.compile(r"^\s*[-*>\u2022\u2013]\s+(?=\S)")
_NUMBERED = re.compile(r"^\s*\d{1,2}[.)]\s+(?=\S)")


def readable(reply: str, question: str) -> str:
    """Return ``reply`` without LaTeX markup, struck-out text, and questions after the answer.

    >>> readable(r"$1{,}250\\%$", "How much?")
    '1,250%'
    """
    reply = _NO_WORD.sub("", _LATEX.sub(r"\1\2", reply))
    turn = _NEXT_TURN.search(_without_question(reply.strip(), question))
    first_turn = turn.string[: turn.start()] if turn else ""
    return first_turn if re.search(r"\w", first_turn) else reply


def stated_answer(reply: str, question: str) -> str:
    """Return the part of ``reply`` that states its answer to ``question``, or else all of it.

    >>> stated_answer("Section 2 says 30 days. **Answer:** 45 days", "How long is the notice?")
    '45 days'
    """
    if (value := _of_json(reply, question)) is not None:
        return value
    text = _after_correction(reply, question)
    lines = text.splitlines()
    if (_CANDIDATES.search(text) and not _ANSWERS.search(text)) or (
        len(lines) > 1 and all(map(_bare_item, lines))
    ):
        return ""
    if row := _TABLE_ROW.match(lines[-1]) if lines else None:
        return row[1].split("|")[-1].strip()
    after_q = _ANSWER_MARK.finditer(text) if _QUESTION_MARK.search(text) else ()
    if labels := [*_LABEL.finditer(text), *after_q]:
        tail = text[labels[-1].end() :].strip()
        if tail:
            first = tail if _FENCE.match(tail) or _BOXED.search(tail) else tail.splitlines()[0]
            return _stated(first.strip("*_ "), question)
    return _stated(text, question)


def stated_items(reply: str, question: str) -> str:
    """Return the part of ``reply`` that lists items: a JSON value, text after a label, or all."""
    if (value := _of_json(reply, question)) is not None:
        return value
    text = _after_correction(reply, question)
    labels = [*_LABEL.finditer(text)]
    return (text[labels[-1].end() :].strip() if labels else "") or text


def _after_correction(reply: str, question: str) -> str:
    """Return ``reply`` without the question, and without everything before "Wait, no: "."""
    return _CORRECTS.split(_without_question(reply.strip(), question))[-1]


def _stated(text: str, question: str) -> str:
    if boxed := _BOXED.findall(text):
        return str(boxed[-1])
    if (fenced := _FENCE.findall(text)) and (content := str(fenced[-1][1]).strip()):
        return _of_json(content, question) or content
    sentences = [sentence for sentence in _sentences(text) if re.search(r"\w", sentence)]
    if not sentences:
        return text
    told = [
        one for one in sentences if not (_FIELD.match(one) and _ASIDE.search(one.split(":")[0]))
    ]
    fields = [field for sentence in told if (field := _FIELD.match(sentence))]
    last = fields[0] if len(fields) == 1 and fields[0].string == told[-1] else None
    if (
        last
        and len(sentences) > 1
        and not _alone(sentences[0])
        and word_count(last["value"]) <= SHORT
    ):
        return last["value"].strip("*_ ")
    if told[1:] and told[0].endswith(":") and _alone(told[1]) and not any(map(_alone, told[2:])):
        return told[1]  # after words that lead to it
    if _LETTERED.match(sentences[0]) and OPTIONS.search(question) and not _ANSWERS.search(text):
        return sentences[0]
    brief = _BRIEF.match(sentences[0])
    head = brief[0] if brief else _DASH.split(sentences[0])[0]
    tail = sentences[0][len(head) :].lstrip(" ;-\u2013\u2014")
    if (tail or len(sentences) > 1) and _alone(head):
        if not (tail and (_names(head, question) or _SUBJECT.match(sentences[0]))):
            return head
        if _alone(tail) and not _names(tail, question):
            return tail
    if (bold := _bold_value(text, question)) is not None:
        return bold
    asking = [one for one in sentences if one.rstrip(_MARKS).endswith("?") or _POINTS.match(one)]
    telling = [sentence for sentence in sentences if sentence not in asking] or sentences
    for rule in (_ANSWERS.search, _CONCLUDES.match, _IT_IS.match):
        if concluding := [sentence for sentence in telling if rule(sentence)]:
            return concluding[-1]
    topic = content_words(question)
    return max(reversed(telling), key=lambda sentence: len(topic & content_words(sentence)))


def _bold_value(text: str, question: str) -> str | None:
    """Return the last bold value; among several in a sentence, the one nearest question words."""
    values = [
        Place(words, match.start(), match.end())
        for match in _BOLD.finditer(text)
        if not (
            (words := match[1] or match[2]).rstrip().endswith((":", "?")) or _names(words, question)
        )
        and not (refused(text, *match.span()) or _SOURCE.search(before(text, match.start())))
    ]
    if not values:
        return None
    ends = _SENTENCE_END.finditer(text, 0, values[-1].start + len("**B"))
    low = max((end.end() for end in ends), default=0)
    return of_clause(text, question, [value for value in values if value.start >= low])[-1].words


def _names(text: str, question: str) -> bool:
    """Return whether ``text`` is not a value but the question's subject or a citation."""
    place, words = _PLACE.match(text), content_words(text)
    if place and place[1].lower() not in question.lower():
        return True
    if not words or re.search(r"\d", text) or _ALTERNATIVES.search(question):
        return False
    return words <= content_words(question)


def _without_question(text: str, question: str) -> str:
    """Return the reply without the question, if the reply repeats it word for word."""
    words = re.findall(r"\w+", question)
    if len(words) < _LEAST_REPEATED:
        return text
    repeated = re.search(r"\W+".join(map(re.escape, words)) + r"[^\w\n]*", text, re.IGNORECASE)
    if repeated is None:
        return text
    return f"{text[: repeated.start()]}\n{text[repeated.end() :]}".strip()


def _alone(sentence: str) -> bool:
    """Return whether the sentence is just a value: short, and not a lead-in to one."""
    return _short(sentence) and ":" not in sentence and not sentence.rstrip().endswith(("?", ","))


def _sentences(text: str) -> Iterator[str]:
    lines = text.splitlines()
    numbered = sum(map(bool, map(_NUMBERED.match, lines)))
    for line in lines:
        if line.startswith(("#", ">")) and len(lines) > 1:
            continue  # a heading or a quotation
        if number := _NUMBERED.match(line):
            item, day = line[number.end() :], next(days(line), None)
            counts = int(number[0].strip(" .)")) == 1 or _short(item)  # "2. Paris" may mean the 2
            if (
                numbered > 1
                or _LETTERED.match(item)
                or (counts and re.search(r"\d", item) and not (day and not day.start))
            ):
                line = item
            elif _short(item):
                yield line.strip()
                continue
        for sentence in _SENTENCE_END.split(_BULLET.sub("", line)):
            yield sentence.strip()


def _bare_item(line: str) -> bool:
    """Return whether the line is a list item without a field name: one of many candidates."""
    return bool(_BULLET.match(line) or _NUMBERED.match(line)) and ":" not in line


def _short(text: str) -> bool:
    return 0 < word_count(text) <= SHORT and not _NO_VALUE.search(text)


def _of_json(text: str, question: str) -> str | None:
    """Return the answer from a JSON object that is all of ``text``, except a fence and words."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value: Any = load_json(text[start : end + 1])
    except ValueError:
        return None
    if not isinstance(value, dict) or not value:
        return None
    keys = {str(key).lower(): key for key in value}
    telling = [keys[key] for key in keys if not _ASIDE.search(key)]
    topic = content_words(question)
    telling.sort(key=lambda key: -len(topic & content_words(str(key))))
    chosen = next((keys[key] for key in _KEYS if key in keys), next(iter(telling), None))
    content = value.get(chosen)
    if isinstance(content, dict):
        return " ".join(str(part) for part in content.values())
    if isinstance(content, list):
        return " or ".join(map(str, content)) if len(content) == 2 else "; ".join(map(str, content))
    return "" if content is None else str(content)


class Place(NamedTuple):
    """Words and their position in a text."""

    words: str
    start: int
    end: int


_Placed = TypeVar("_Placed", Place, Quantity, Day)


def before(text: str, start: int) -> str:
    """Return the text just before ``start``, at most `NEAR` characters."""
    return text[max(start - NEAR, 0) : start]


def refused(text: str, start: int, end: int) -> bool:
    """Return whether the reply denies this value: "not" before it, or "is wrong" after it."""
    return bool(_DENIED.search(before(text, start)) or _TAKEN_BACK.match(text[end : end + NEAR]))


def names_a_place(text: str, one: Quantity, question: str) -> bool:
    """Return whether the number names a section or page that the question does not ask about."""
    word = _PLACE_WORD.search(before(text, one.start))
    return word is not None and word[1].lower().strip(".") not in question.lower()


def unstated(stated: str, reply: str) -> bool:
    """Return whether the reply says that the document has no answer, without one after "but"."""
    matches = [(_UNSTATED.search(stated), stated), (_ABSTAINS.match(reply), reply)]
    return any(match and not _YET.search(text, match.end()) for match, text in matches)


def offered(text: str, start: int, end: int) -> bool:
    """Return whether "or" is on either side of the value, making it one of several candidates."""
    prefix = before(text, start)
    either = _OR.search(prefix) and not _FROM_TO.search(prefix)
    return bool(either or _EITHER.match(text[end : end + NEAR]))


def of_clause(text: str, question: str, found: Sequence[_Placed]) -> list[_Placed]:
    """Return the places in the clause with most words from the question; all if none has any."""
    cuts = [0, *(border.end() for border in _CLAUSE.finditer(text)), len(text)]
    topic = content_words(question)
    clauses = [
        (
            len(topic & content_words(text[low:high])),
            bool(_BUT.search(before(text, low))),
            -low,
            inside,
        )
        for low, high in pairwise(cuts)
        if (inside := [place for place in found if low <= place.start < high])
    ]
    n_shared, _, _, inside = max(clauses, key=itemgetter(0, 1, 2), default=(0, False, 0, []))
    return inside if n_shared else list(found)


def elsewhere(text: str, question: str, places: Sequence[Place]) -> bool:
    """Return whether no place is in the clause on the question, which states another name."""
    cuts = [0, *(border.end() for border in _BESIDE.finditer(text)), len(text)]
    topic = content_words(question)
    shares = {
        (low, high): (
            len(topic & content_words(text[low:high])),
            bool(_BUT.search(before(text, low))),
        )
        for low, high in pairwise(cuts)
    }
    (low, high), best = max(shares.items(), key=itemgetter(1), default=((0, 0), (0, False)))
    names = _NAME.findall(text, low, high) if best[0] else []
    return any(name not in question for name in names) and not any(
        low <= place.start < high or value == best
        for place in places
        for (a, b), value in shares.items()
        if a <= place.start < b
    )


def content_words(text: str) -> frozenset[str]:
    """Return the words that show a text's topic, in lower case."""
    words = re.findall(r"[^\W_]+", text.lower())
    words = [word for word in words if len(word) > 2 and word not in _FUNCTION_WORDS]
    return frozenset(word[:_STEM] for word in words)
