"""Random typography: the same text in other quotation marks, dashes, blanks, lines and accents."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from dataclasses import dataclass

from hypothesis import strategies as st

_DOUBLE = re.compile(r'"')
_INSIDE = re.compile(r"(?<=\w)'(?=\w)|(?<=s)'(?= )")


@dataclass(frozen=True)
class Typography:
    """How the straight typography of the passages is set."""

    quotes: tuple[str, str]
    apostrophe: str
    dash: str
    hyphen: str
    ellipsis: str
    blank: str
    width: int | None
    form: str


TYPOGRAPHIES = st.builds(
    Typography,
    quotes=st.sampled_from(
        [('"', '"'), ("“", "”"), ("'", "'"), ("‘", "’"), ("„", "“"), ("«\u00a0", "\u00a0»"),
         ("``", "''"), ("＂", "＂")]
    ),
    apostrophe=st.sampled_from("'’´`′＇"),
    dash=st.sampled_from(["—", " — ", " – ", " -- ", "--", " - ", "---", "\u2009—\u2009", "――"]),
    hyphen=st.sampled_from(["-", "\u2010", "\u2011", "\u00ad-"]),
    ellipsis=st.sampled_from(["...", "…", ". . ."]),
    blank=st.sampled_from([" ", "  ", "\u00a0", "\u2002", "\t", "\u200b ", "\n", "\r\n"]),
    width=st.none() | st.integers(12, 90),
    form=st.sampled_from(["NFC", "NFD"]),
)  # fmt: skip


def set_in(text: str, look: Typography) -> str:
    """``text``, of straight typography, in another one."""
    text = re.sub(r"\s*--\s*", "\x00", text)
    text = _INSIDE.sub(look.apostrophe.replace("\\", ""), text)
    sides = iter(range(1 << 30))
    text = _DOUBLE.sub(lambda _: look.quotes[next(sides) % 2], text)
    text = re.sub(r"(?<=\w)-(?=\w)", look.hyphen, text).replace("...", look.ellipsis)
    text = re.sub(r"\s+", " ", text)
    if look.width is None:
        text = text.replace(" ", look.blank)
    else:
        # Long words stay whole; compounds may be parted after their hyphen, as typesetters do.
        text = textwrap.fill(text, look.width, break_long_words=False, break_on_hyphens=True)
    return unicodedata.normalize(look.form, text.replace("\x00", look.dash))
