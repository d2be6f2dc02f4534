"""Where in a reply its answer is stated: a few rules, the same at every length.

In this order, the first that applies:

1. a JSON object: the value of the key ``answer``, ``result`` or the like, else of the one that
   shares most words with the question and gives no reason or source; of a table the last cell;
2. what follows the last label ``Answer:`` (in other languages, too), to the end of the line;
3. ``\\boxed{...}``, or what a code fence around the answer holds;
4. the last sentence where it alone is a field with a short value (``Category: low``);
5. a value by itself at the beginning or after a colon, before an explanation: at most `SHORT` words
   without a verb;
6. the last text in bold;
7. the last sentence that says "the answer is", else the last that begins with "so" or "therefore",
   else with "it is", else the one that shares most words with the question, the last of equal ones.

The question itself, where the reply repeats it, what comes before a correction ("Wait, no: ") and
sentences that ask are left out. A list of candidates states none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from contextcliff_dagster.scoring.nearby import (
    PLACE_WORD,
    Place,
    before,
    content_words,
    of_clause,
    refused,
)
from contextcliff_dagster.scoring.normalize import word_count
from contextcliff_dagster.scoring.parse import load_json
from contextcliff_dagster.scoring.quantities import days

SHORT = 6
_LEAST_REPEATED = 4
"""Words of a question that a reply is said to repeat."""
_MARKS = "*_ \"'\u201c\u201d\u00ab\u00bb`"
_DASH = re.compile(r"\s[-\u2013\u2014]\s(?!(?:[A-Z]{3}\s)?[\d$\u20ac\u00a3])|\s\(")
_BRIEF = re.compile(r"\S+(?:\s[^\s;]+){0,2}(?=;\s)")
_SUBJECT = re.compile(
    r"the [^(]*\([^()]*\)\s*"
    r"(?::|(?:is|are|was|were|sets?|states|says|provides|requires|gives|has)\b)",
    re.IGNORECASE,
)
"""What is no value by itself, though an aside follows it: "The fee (Section 4) is"."""
_PLACE = re.compile(rf"\W*({PLACE_WORD})\s*\d[\w.]*\W*$", re.IGNORECASE)
_SOURCE = re.compile(r"\b(?:according to|based on|as per|per|see)\s$", re.IGNORECASE)
_POINTS = re.compile(
    r"\W*(?:see\b|(?:this|that|it) (?:is|was) (?:stated|given|mentioned|found|set out)\b"
    rf"|(?:this|that|it) is (?:on|in) {PLACE_WORD})",
    re.IGNORECASE,
)
"""A sentence that only says where it stands."""
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
    """``reply`` without LaTeX's marks, what is struck out, and questions that follow the answer.

    >>> readable(r"$1{,}250\\%$", "How much?")
    '1,250%'
    """
    reply = _NO_WORD.sub("", _LATEX.sub(r"\1\2", reply))
    turn = _NEXT_TURN.search(_without_question(reply.strip(), question))
    own = turn.string[: turn.start()] if turn else ""
    return own if re.search(r"\w", own) else reply


def stated_answer(reply: str, question: str) -> str:
    """The part of ``reply`` that states its answer to ``question``; else all of it.

    >>> stated_answer("Section 2 says 30 days. **Answer:** 45 days", "How long is the notice?")
    '45 days'
    """
    if (value := _of_json(reply, question)) is not None:
        return value
    text = _corrected(reply, question)
    lines = text.splitlines()
    if (_CANDIDATES.search(text) and not _ANSWERS.search(text)) or (
        len(lines) > 1 and all(map(_bare_item, lines))
    ):
        return ""
    if row := _TABLE_ROW.match(lines[-1]) if lines else None:
        return row[1].split("|")[-1].strip()
    if labels := [*_LABEL.finditer(text), *_after_q(text)]:
        after = text[labels[-1].end() :].strip()
        if after:
            first = after if _FENCE.match(after) or _BOXED.search(after) else after.splitlines()[0]
            return _stated(first.strip("*_ "), question)
    return _stated(text, question)


def stated_items(reply: str, question: str) -> str:
    """The part of ``reply`` that lists items: a JSON value, what follows a label, else all."""
    if (value := _of_json(reply, question)) is not None:
        return value
    text = _corrected(reply, question)
    labels = [*_LABEL.finditer(text)]
    return (text[labels[-1].end() :].strip() if labels else "") or text


def _corrected(reply: str, question: str) -> str:
    """Without the question, and what comes before "Wait, no: "."""
    return _CORRECTS.split(_without_question(reply.strip(), question))[-1]


def _stated(text: str, question: str) -> str:
    if boxed := _BOXED.findall(text):
        return str(boxed[-1])
    if (fenced := _FENCE.findall(text)) and (inner := str(fenced[-1][1]).strip()):
        return _of_json(inner, question) or inner
    sentences = [one for one in _sentences(text) if re.search(r"\w", one)]
    if not sentences:
        return text
    told = [one for one in sentences if not (_FIELD.match(one) and _is_aside(one))]
    fields = [field for one in told if (field := _FIELD.match(one))]
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
    rest = sentences[0][len(head) :].lstrip(" ;-\u2013\u2014")
    if (rest or len(sentences) > 1) and _alone(head):
        if not (rest and (_names(head, question) or _SUBJECT.match(sentences[0]))):
            return head
        if _alone(rest) and not _names(rest, question):
            return rest
    if (bold := _bold(text, question)) is not None:
        return bold
    asking = [one for one in sentences if one.rstrip(_MARKS).endswith("?") or _POINTS.match(one)]
    telling = [one for one in sentences if one not in asking] or sentences
    for rule in (_ANSWERS.search, _CONCLUDES.match, _IT_IS.match):
        if concluding := [one for one in telling if rule(one)]:
            return concluding[-1]
    asked = content_words(question)
    return max(reversed(telling), key=lambda one: len(asked & content_words(one)))


def _bold(text: str, question: str) -> str | None:
    """The last value in bold; of several in one sentence that nearest to the question's words."""
    values = [
        Place(words, one.start(), one.end())
        for one in _BOLD.finditer(text)
        if not (
            (words := one[1] or one[2]).rstrip().endswith((":", "?")) or _names(words, question)
        )
        and not (refused(text, *one.span()) or _SOURCE.search(before(text, one.start())))
    ]
    if not values:
        return None
    ends = _SENTENCE_END.finditer(text, 0, values[-1].start + len("**B"))
    low = max((end.end() for end in ends), default=0)
    return of_clause(text, question, [one for one in values if one.start >= low])[-1].words


def _names(text: str, question: str) -> bool:
    """Whether ``text`` is no value, but names what is asked for, or a place as "Section 4" does."""
    place, words = _PLACE.match(text), content_words(text)
    if place and place[1].lower() not in question.lower():
        return True
    if not words or re.search(r"\d", text) or _ALTERNATIVES.search(question):
        return False
    return words <= content_words(question)


def _without_question(text: str, question: str) -> str:
    """The reply without the question, where it repeats it word for word."""
    words = re.findall(r"\w+", question)
    if len(words) < _LEAST_REPEATED:
        return text
    repeated = re.search(r"\W+".join(map(re.escape, words)) + r"[^\w\n]*", text, re.IGNORECASE)
    if repeated is None:
        return text
    return f"{text[: repeated.start()]}\n{text[repeated.end() :]}".strip()


def _after_q(text: str) -> list[re.Match[str]]:
    return list(_ANSWER_MARK.finditer(text)) if _QUESTION_MARK.search(text) else []


def _alone(sentence: str) -> bool:
    """Whether it is a value by itself: short, and no sentence that only leads to one."""
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


def _is_aside(line: str) -> bool:
    return _ASIDE.search(line.split(":")[0]) is not None


def _bare_item(line: str) -> bool:
    """Whether the line is an item of a list that names no field: one of several candidates."""
    return bool(_BULLET.match(line) or _NUMBERED.match(line)) and ":" not in line


def _short(text: str) -> bool:
    return 0 < word_count(text) <= SHORT and not _NO_VALUE.search(text)


def _of_json(text: str, question: str) -> str | None:
    """The answer in a JSON object that is all of ``text``, but for a fence and words around it."""
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
    asked = content_words(question)
    telling.sort(key=lambda key: -len(asked & content_words(str(key))))
    found = next((keys[key] for key in _KEYS if key in keys), next(iter(telling), None))
    inner = value.get(found)
    if isinstance(inner, dict):
        return " ".join(str(part) for part in inner.values())
    if isinstance(inner, list):
        return " or ".join(map(str, inner)) if len(inner) == 2 else "; ".join(map(str, inner))
    return "" if inner is None else str(inner)
