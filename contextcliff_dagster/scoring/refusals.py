"""Phrases by which a model declines to answer: English, Chinese, Japanese, Korean, Thai.

A refusal in another language falls through to a later tag of the taxonomy.
"""

from __future__ import annotations

import re
from functools import cache

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
# Documents deny many things themselves: a denial counts where it is about the text.
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
_STRAIGHT = str.maketrans({"\u2018": "'", "\u2019": "'"})


def is_only_a_refusal(answer: str) -> bool:
    """Whether `answer` is one word or phrase for "no answer" (``unknown``, ``不知道``)."""
    return _WHOLE.fullmatch(answer.strip(" .!*\"'。！？「」")) is not None


def has_refusing_phrase(answer: str, window: int) -> bool:
    """Whether a refusing phrase is in the first or last `window` characters of `answer`."""
    straight = answer.translate(_STRAIGHT)
    phrases = _ENGLISH_PHRASES if straight.isascii() else _phrases()
    return any(map(phrases.search, (straight[:window], straight[-window:])))


@cache
def _phrases() -> re.Pattern[str]:
    every = (_ENGLISH, _CHINESE, _JAPANESE, _KOREAN, _THAI)
    return re.compile("|".join(every), re.IGNORECASE)
