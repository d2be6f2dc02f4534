"""Failure tags: why an answer is wrong. A person can check the rules, and the first match applies.

- `empty`: nothing but white space, punctuation, end markers and closed reasoning; or JSON with only
that as its answer.
- `schema_violation`: the recipe asks for a schema; the output is not JSON or does not fit it.
- `refusal`: a refusing phrase (English, Chinese, Japanese, Korean or Thai; or the serving's content
  filter), not quoted from the document.
- `incompleteness`: cut by the length limit, ends in mid-sentence or mid-reasoning, or only begins
  an accepted answer.
- `instruction_drift`: answers in another form. It holds an accepted answer inside other words; or
  is over `DRIFT_RATIO` times as long as the longest accepted answer (and over `DRIFT_MIN_WORDS`
  words); or is a sentence (`OFF_TOPIC_MIN_WORDS` words) without one content word of the question.
- `wrong_evidence`: the answer is in the document, word for word or by all its numbers and names.
- `hallucination`: anything else; the document does not say it.

Content words are numbers, and words of three letters and more that are no function words. In
scripts without spaces two characters count as a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

from contextcliff_dagster.contracts import Example, FailureTag
from contextcliff_dagster.scoring.containment import Haystack, straightened
from contextcliff_dagster.scoring.normalize import (
    answer_tokens,
    spaced_text,
    unspaced_runs,
    word_count,
)
from contextcliff_dagster.scoring.parse import ParsedAnswer, has_content

_FIND = (
    r"(?:find|answer|determine|locate|identify|help|assist|provide|see|access|comply|tell|say|read|"
    r"fulfil+|process|respond|complete|do that|confirm)"
)
_SAID = (
    r"(?:mentioned|specified|stated|provided|given|found|included|available|listed|present|"
    r"contained|answerable|in the (?:text|document|context|passage|ledger)|enough)"
)
_ENGLISH = (
    r"\b(?:"
    r"(?:i'?m|i am|we are|we're) (?:very |really |so |truly )?(?:sorry|afraid|unable|not able)"
    r"|sorry,|apologi[sz]e|my apologies"
    r"|(?:cannot|can't|can not|could not|couldn't|unable to|not able to|failed to)"
    rf" (?:\w+ )?{_FIND}"
    rf"|not (?:\w+ )?{_SAID}"
    r"|(?:there (?:is|was|are) )?no (?:\w+ )?"
    r"(?:information|mention|record|evidence|data|reference|answer|details?)\b"
    r"|(?:does|do|did)(?: not|n't) (?:\w+ )?"
    r"(?:mention|contain|say|specify|state|include|appear|list|provide|exist|give)"
    r"|i (?:don't|do not) (?:know|have|see)|as an ai"
    r"|(?:insufficient|not enough) (?:information|context|data)"
    r"|impossible to (?:say|know|determine|answer)|no way to (?:know|tell)|unanswerable"
    r"|i (?:must|have to) decline|i won't|i will not"
    r")"
)
# Documents contain denials, too: a denial counts only if it is about the text.
_CHINESE = (
    r"抱歉|对不起|對不起|很遗憾|很遺憾|作为(?:一个|一個)?(?:AI|人工智能)"
    r"|(?:无法|無法|不能|没办法|沒辦法)[^，。！？\n]{0,8}"
    r"(?:回答|确定|確定|判断|判斷|得知|得出|推断|推斷|知道|查到|找到|确认|確認)"
    r"|(?:没有|沒有|未|不|没|沒)(?:有|明确|明確|具体|具體|直接){0,2}(?:提及|提到)"
    r"|(?:文[中章本档檔献獻]|原文|上下文|材料|段落|资料|資料)[^，。！？\n]{0,8}(?:没有|沒有|未|没|沒)"
    r"[^，。！？\n]{0,6}(?:说明|說明|给出|給出|提供|指出|涉及|包含|记载|記載|描述|显示|顯示)"
    r"|(?:没有|沒有)(?:相关|相關|任何|足够|足夠|具体|具體)*的?(?:信息|資訊|答案)"
    r"|(?:信息|資訊)不足|我不知道|我不清楚"
)
_JAPANESE = (
    r"申し訳(?:ありません|ございません)|すみません|[分わ]かりません|見つかりません"
    r"|(?:記載|言及|記述)(?:は|が)?(?:されて)?(?:い)?(?:あり)?(?:ません|ない)"
    r"|(?:情報|記載|記述|答え)(?:は|が)(?:ありません|ない)"
    r"|お?答え(?:する(?:こと)?|ることは?)?(?:は|が)?でき(?:ません|ない)"
)
_KOREAN = (
    r"죄송|알 수 없|찾을 수 없|나와 ?있지 않|언급되(?:어 ?있)?지 않|정보가 없|모르겠"
    r"|(?:대답|답변)할 수 없|제공되지 않"
)
_THAI = r"ขออภัย|ขอโทษ|ไม่ทราบ|ไม่มีข้อมูล|ไม่ได้(?:ระบุ|กล่าวถึง|บอก)|ไม่สามารถ(?:ตอบ|ระบุ|หา)"
_ENGLISH_PHRASES = re.compile(_ENGLISH, re.IGNORECASE)
_WHOLE = re.compile(
    r"(?:unknown|none|n/?a|null|no answer|not sure|unclear|undefined|nothing|missing|nil"
    r"|不知道|不清楚|未知|不详|不詳|不明|不确定|不確定|无答案|無答案|ไม่รู้|모름|알 수 없음)",
    re.IGNORECASE,
)


def is_only_a_refusal(answer: str) -> bool:
    """Return whether `answer` is one word or phrase for "no answer" (``unknown``, ``不知道``)."""
    return _WHOLE.fullmatch(answer.strip(" .!*\"'。！？「」")) is not None


def has_refusing_phrase(answer: str, window: int) -> bool:
    """Return whether a refusing phrase is in the first or last `window` characters."""
    text = straightened(answer)
    phrases = _ENGLISH_PHRASES if text.isascii() else _phrases()
    return any(map(phrases.search, (text[:window], text[-window:])))


@cache
def _phrases() -> re.Pattern[str]:
    every = (_ENGLISH, _CHINESE, _JAPANESE, _KOREAN, _THAI)
    return re.compile("|".join(every), re.IGNORECASE)


DRIFT_RATIO = 5.0
"""An answer has drifted if it has over this many times the words of the longest accepted answer."""
DRIFT_MIN_WORDS = 15
"""Maximum words of an answer that never counts as drifted, because a short answer may be wordy."""
OFF_TOPIC_MIN_WORDS = 6
"""Minimum words of a sentence that is off topic if it shares no content word with the question."""
REFUSAL_WINDOW = 300
"""Characters at both ends of the output in which a refusing phrase counts."""
QUOTE_MIN_WORDS = 4
"""This many consecutive words from the document are a quotation, not a refusal."""

_LENGTH_REASONS = frozenset({"length", "max_tokens", "max_output_tokens"})
_FILTER_REASONS = frozenset({"content_filter", "refusal", "safety"})

_HANGING_SIGNS = ",;:([{<=-\u2013\u2014/&\uff0c\u3001\uff1b\uff1a\uff08\u300a\u300c\u300e\u3010"
_BRACKETS = tuple(
    zip("([\uff08\u300a\u300c\u300e\u3010", ")]\uff09\u300b\u300d\u300f\u3011", strict=True)
)
_HANGING_WORDS = frozenset(
    "a an the and or but nor of to in on at by for from with into than that which who whose is are "
    "was were be been has have had will would as if because while when".split()
)
_FUNCTION_WORDS = _HANGING_WORDS | frozenset(
    "what where why how does did not can could should may might must shall this these those there "
    "here its his her their our your you they them she him it he we i do according document text "
    "passage context following please find report state give tell answer question value only one "
    "any all each some about between during after before over under".split()
)


def tag_failure(
    parsed: ParsedAnswer,
    example: Example,
    *,
    document: Callable[[], Haystack],
    finish_reason: str | None = None,
    asks_schema: bool = False,
    holds_accepted: bool = False,
) -> FailureTag:
    """Return the tag of a failed answer (see the table above).

    `document` returns the document's text, and is called only if the tag depends on it.
    `holds_accepted`: containment is 1. Call this only for failed answers.
    """
    if not has_content(parsed.visible):
        return FailureTag.EMPTY
    if asks_schema and parsed.error is not None:
        return FailureTag.SCHEMA_VIOLATION
    answer = parsed.text if parsed.text is not None else parsed.visible
    if not has_content(answer):
        return FailureTag.EMPTY
    if not holds_accepted and _refuses(answer, finish_reason, document):
        return FailureTag.REFUSAL
    if _stops_short(parsed, answer, example.answers, finish_reason):
        return FailureTag.INCOMPLETENESS
    if holds_accepted or _drifts(answer, example.question, example.answers):
        return FailureTag.INSTRUCTION_DRIFT
    if _stands_in(answer, example.question, document()):
        return FailureTag.WRONG_EVIDENCE
    return FailureTag.HALLUCINATION


def _refuses(answer: str, finish_reason: str | None, document: Callable[[], Haystack]) -> bool:
    if finish_reason in _FILTER_REASONS or is_only_a_refusal(answer):
        return True
    if not has_refusing_phrase(answer, REFUSAL_WINDOW):
        return False
    return word_count(answer) < QUOTE_MIN_WORDS or not document().holds(answer)


def _stops_short(
    parsed: ParsedAnswer, answer: str, accepted: Sequence[str], finish_reason: str | None
) -> bool:
    last = answer.rstrip()[-1]
    if finish_reason in _LENGTH_REASONS or parsed.text is None or last in _HANGING_SIGNS:
        return True
    pairs = _BRACKETS[:2] if answer.isascii() else _BRACKETS
    if any(answer.count(left) > answer.count(right) for left, right in pairs):
        return True
    tokens = answer_tokens(answer)
    words = re.findall(r"[^\W\d_]+", answer.lower())
    if len(words) >= 3 and words[-1] in _HANGING_WORDS and last.isalpha():
        return True
    return any(
        len(tokens) < len(gold) and tokens and gold[: len(tokens)] == tokens
        for gold in map(answer_tokens, accepted)
    )


def _drifts(answer: str, question: str, accepted: Sequence[str]) -> bool:
    words = word_count(answer)
    longest = max(map(word_count, accepted), default=1)
    if words > max(DRIFT_MIN_WORDS, DRIFT_RATIO * longest):
        return True
    topic = _content_words(question)
    if words < OFF_TOPIC_MIN_WORDS or not topic:
        return False
    expected = topic.union(*map(_content_words, accepted))
    return expected.isdisjoint(_content_words(answer))


def _content_words(text: str) -> set[str]:
    """Return the stems of the words that carry the topic of `text`; in scripts without spaces,
    whose words are unknown, all pairs of neighbouring characters."""
    words = re.findall(r"[^\W_]+", spaced_text(text).lower())
    pairs = {a + b for run in unspaced_runs(text) for a, b in pairwise(run)}
    return pairs | {
        _stem(w)
        for w in words
        if w not in _FUNCTION_WORDS and (len(w) >= 3 or any(c.isdigit() for c in w))
    }


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _stands_in(answer: str, question: str, document: Haystack) -> bool:
    if document.holds(answer):
        return True
    question_words = {word.lower() for word in re.findall(r"[^\W_]+", spaced_text(question))}
    specifics = {s for s in _specifics(answer) if s.lower() not in question_words}
    return bool(specifics) and all(map(document.holds, specifics))


def _specifics(answer: str) -> set[str]:
    """Return an answer's numbers and names, which can only come from the document."""
    words = re.findall(r"[^\W_]+(?:[.,'][^\W_]+)*", spaced_text(answer))
    return {
        w
        for i, w in enumerate(words)
        if any(c.isdigit() for c in w)
        or (i > 0 and w[0].isupper() and w.lower() not in _FUNCTION_WORDS)
    }
