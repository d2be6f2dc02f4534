"""Texts on which tokenizers that mean the same have differed: scripts, spaces, digits, joints.

Small on purpose: a fast counter is compared with its reference library on them whenever it is
loaded. Written for this purpose, none is quoted from anywhere.
"""

from __future__ import annotations

_PROSE = (
    "The lighthouse keeper's log for 3 March 1887 records 14,250 waves, two brigs and no wind. ",
    "It's what they'd've said, I'm sure: we'll see, you're late, she doesn't mind. ",
    "IT'S THEY'LL DON'T You'Re We'vE camelCaseWord HTTPServerError snake_case_name kebab-case ",
    "Der Flußübergang bei Öhringen ist für Fußgänger gesperrt; l'été, où ça? ¿Qué más, señor? ",
    "Žluťoučký kůň úpěl; Zażółć gęślą jaźń; Ελληνικά και πάλι; Съешь ещё этих булок. ",
    "السلام عليكم ورحمة الله، كيف الحال؟ ١٢٣٤٥ — עברית עם נִקּוּד, שלום עולם. ",
    "สวัสดีครับ วันนี้อากาศดีมาก ๆ ขอบคุณ — ភាសាខ្មែរ — ລາວ — မြန်မာ ",
    "हिन्दी में लिखा हुआ वाक्य, संख्या १२३४; தமிழ் எழுத்து; বাংলা ভাষা; ਪੰਜਾਬੀ ",
    "東京は今日も晴れです。カタカナとひらがな、漢字。你好,世界!汉语没有空格。한국어 문장입니다. ",
)
_CODE = (
    "def f(x: int = 0x1F, *args, **kw) -> dict[str, list[int]]:\n    return {'a': [x, -1.5e-3]}\n",
    "\tif (a&&b||!c) { return a->b[i++] ^ ~0xFFu; }  // ok\r\n\t}\r\n\r\n",
    "SELECT COUNT(*) FROM t WHERE a<>'b' AND c>=1_000;--\n<div class=\"x\">&nbsp;</div>\n",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\path\\file.txt $HOME/.config/*~\n",
    "$$\\frac{\\partial^2 f}{\\partial x^2} = \\sum_{i=0}^{\\infty} \\alpha_i$$ ∀x∈ℝ: ⌈x⌉ ≥ x\n",
)
_SIGNS = (
    "🙂😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷❤️‍🔥✈︎☎️ 1️⃣ #️⃣",
    "e\u0301 é a\u030a\u0323 ﬁ ﬀ Ǆ ǅ ǆ ß ẞ İ ı ſ K Å ²½Ⅷ①٣৪〇",
    "'ſ it'ſ IT'ſ 'S 's ’s ‘quoted’ “double” «guillemets» „unten“",
    "zero\u200bwidth\u200cnon\u200djoin\u2060word\ufeffbom\u00adsoft\u00a0hard\u202frtl\u202e.",
    "a\x00b\x01c\x07d\x08e\x0bf\x0cg\x1bh\x1fi\x7fj\x80k\x85l\u2028m\u2029n",
    "\ufffd\ufffe\uffff\U0001f600\U000e0041\U0010ffff𝒜𐐀𠀀",
    "<|endoftext|><|im_start|>user<|im_end|><|fim_prefix|><s></s>[INST][/INST]<unk><pad>[CLS]",
)
_RUNS = (
    *(f"x{' ' * n}y" for n in (1, 2, 3, 7, 16, 81, 300)),
    *(f"{sign * n}" for sign in "\n\t0a=-_." for n in (2, 9, 70, 400)),
    *(f"{'9' * n} {'1' * n}." for n in (1, 2, 3, 4, 7, 20)),
    " \n \n\n  \n\t\n \t x\n\n\n  y  \n",
    "\r\n\r\n \r\n\n\r \r\r\n",
    "  leading and trailing  ",
    "a b  c   d    e     f",
    "word" * 60,
    "AbCdE" * 60,
    "ab1" * 60,
    "ก" * 120,
    "中" * 120,
    "🙂" * 60,
    "\u0301" * 40,
    "'s" * 40,
    "\u00a0" * 40,
)

CHECK_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "a",
    *_PROSE,
    *_CODE,
    *_SIGNS,
    *_RUNS,
    "".join(_PROSE),
    "".join(_CODE),
    " ".join((*_PROSE, *_SIGNS, *_CODE)),
)
