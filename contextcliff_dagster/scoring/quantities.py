"""Numbers with their units, and dates, in the forms that people and models write.

A number may have thousands and decimal marks of either kind (``1,250.50``, ``1.250,50``), a scale
(``1.4 million``, ``2k``, ``5e6``), a sign, and be spelled in English, or up to twelve in German,
French, Spanish or Chinese. ``1.250`` is 1250 or 1.25 and ``5m`` five or five million, whichever is
expected; a comma before three digits separates thousands. A unit is a currency, a per cent, a time,
or one of size that is often mistaken for another (``kg``, ``MB``); other words are not units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from typing import NamedTuple

from contextcliff_dagster.scoring.normalize import fold_forms, spaced_text

_UNITS = {
    "USD": r"US\$|\$|usd|(?:us[- ])?dollars?|dólares",
    "EUR": r"€|eur|euros?",
    "GBP": r"£|gbp|pounds?(?: sterling)?|pfund",
    "CHF": r"chf|fr\.|(?:swiss )?francs?|franken",
    "¥": r"¥",
    "JPY": r"jpy|yen|円",
    "CNY": r"cny|rmb|yuan|renminbi|元",
    "INR": r"₹|inr|rupees?",
    "%": r"%|percent|per cent|prozent|pour cent|por ciento|pct",
    "bp": r"basis points?|bps|basispunkte?n?",
    "year": r"years?|jahre?n?|ans?|années?|años?|yrs?",
    "month": r"months?|monate?n?|mois|mes(?:es)?",
    "week": r"weeks?|wochen?|semaines?|semanas?",
    "day": r"(?:business |working |calendar )?days?|(?:werk|arbeits|kalender)?tage?n?|jours?|días?",
    "hour": r"hours?|hrs?|stunden?|heures?|horas?",
    "minute": r"minutes?|mins?|minuten|minutos?",
    "second": r"seconds?|secs?|sekunden?|secondes?|segundos?",
    "ms": r"ms|milliseconds?",
    "am": r"a\.m\.|am",
    "pm": r"p\.m\.|pm",
    "kg": r"kg|kilos?|kilograms?|kilogramm",
    "g": r"g|grams?|gramm",
    "mg": r"mg|milligrams?",
    "t": r"t|tonnes?|tons?|tonnen",
    "lb": r"lbs?",
    "KB": r"kb|kilobytes?",
    "MB": r"mb|megabytes?",
    "GB": r"gb|gigabytes?",
    "TB": r"tb|terabytes?",
    "kW": r"kw|kilowatts?",
    "MW": r"mw|megawatts?",
    "GW": r"gw|gigawatts?",
    "mm": r"millimet(?:er|re)s?",
    "cm": r"cm|centimet(?:er|re)s?",
    "m": r"met(?:er|re)s?",
    "km": r"km|kilomet(?:er|re)s?",
    "mile": r"miles?|mi|meilen?",
    "foot": r"ft|feet|foot",
    "inch": r"inch(?:es)?",
    "litre": r"lit(?:er|re)s?",
    "ml": r"ml|millilit(?:er|re)s?",
    "C": r"\u00b0\s?C|degrees celsius|celsius",
    "F": r"\u00b0\s?F|degrees fahrenheit|fahrenheit",
}
_ALIKE = {frozenset(("¥", "JPY")), frozenset(("¥", "CNY"))}
_SCALES = {
    Decimal(10) ** 4: r"[万萬]",
    Decimal(10) ** 8: r"[亿億]",
    Decimal(10) ** 3: r"k|thousand|tausend|tsd\.?|mille|mil",
    Decimal(10) ** 6: r"m|mn|mm|million(?:en|s)?|mio\.?|millones|millón",
    Decimal(10) ** 9: r"b|bn|billions?|milliarden?|mrd\.?|milliards?",
}
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SPELLED = {word: Decimal(n) for n, word in enumerate(_ONES)}
_SPELLED |= {word: Decimal(10 * n) for n, word in enumerate(_TENS, start=2)}
_POWERS = {"hundred": Decimal(100), "thousand": Decimal(10) ** 3}
_POWERS |= {"million": Decimal(10) ** 6, "billion": Decimal(10) ** 9}
_ELSEWHERE = {
    word: Decimal(n)
    for n, words in enumerate(
        "一 zwei|deux|dos|二|两 drei|trois|tres|三 vier|quatre|cuatro|四 fünf|cinq|cinco|五 "
        "sechs|seis|六 sieben|siete|七 acht|huit|ocho|八 neun|nueve|九 zehn|dix|diez|十 elf|onze "
        "zwölf|douze|doce".split(),
        start=1,
    )
    for word in words.split("|")
}  # only names that are not also other words

_THIN = r"'\u2019\u00a0\u202f\u2009 "
_DIGITS = rf"\d{{1,3}}(?:[,.{_THIN}]\d{{3}})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?"
_WORD = "|".join(sorted({*_SPELLED, *_POWERS}, key=len, reverse=True))
_WORDS = rf"(?:an?\s(?={'|'.join(_POWERS)}))?(?:{_WORD})(?:[\s-](?:and\s)?(?:{_WORD})\b)*"
_WORDS += f"|{'|'.join(_ELSEWHERE)}"
_UNIT = "|".join(f"(?P<u{place}>{words})" for place, words in enumerate(_UNITS.values()))
_BEFORE = re.sub(r"\(\?P<u(\d+)>", r"(?P<b\1>", _UNIT)
_SCALE = "|".join(f"(?P<s{place}>{words})" for place, words in enumerate(_SCALES.values()))
_END = r"(?![A-Za-z\u00c0-\u024f])"
_PLAIN = re.sub(r"[(][?]P<[us][0-9]+>", "(?:", f"{_UNIT}|{_SCALE}")
_ABUTTING = f"{_PLAIN}|[a-z\u00b0]{{2,4}}|[glh]"
_QUANTITY = re.compile(
    rf"(?<![\w.,#])(?<![A-Za-z]-)(?P<minus>(?:minus|negative)\s|[-\u2212](?=[A-Z$\u20ac\u00a3]))?(?:(?:{_BEFORE})[\s\u00a0]?)?"
    rf"(?P<sign>[-+\u2212]?)(?:(?P<number>{_DIGITS})(?:e(?P<power>[+-]?\d{{1,2}}))?"
    rf"(?![.,]?\d)(?=(?:{_ABUTTING})?{_END})(?:\s\((?:{_WORDS})\))?"
    rf"|(?P<word>{_WORDS}){_END})"
    rf"(?:[\s\u00a0]?(?:{_SCALE}){_END})?(?:[\s\u00a0-]?(?:{_UNIT}){_END})?",
    re.IGNORECASE,
)

_CHINESE = re.compile(
    r"(?<!\w)[一二两三四五六七八九十](?!\w)|(?<=\d)\s?[万萬亿億][元円]?|(?<=\d)\s?[元円]"
)
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio janeiro januari stycznia января",
            "february feb februar février febrero febbraio fevereiro februari lutego февраля",
            "march mar märz mars marzo março maart marca марта",
            "april apr avril abril aprile kwietnia апреля",
            "may mai mayo maggio maio mei maj maja мая",
            "june jun juni juin junio giugno junho czerwca июня",
            "july jul juli juillet julio luglio julho lipca июля",
            "august aug août agosto augustus augusti sierpnia августа",
            "september sep sept septembre septiembre settembre setembro września сентября",
            "october oct oktober okt octobre octubre ottobre outubro października октября",
            "november nov novembre noviembre novembro listopada ноября",
            "december dec dezember dez décembre diciembre dicembre dezembro grudnia декабря",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\.?"
_DATE = re.compile(
    r"(?<![\d.])(?:(?P<y>\d{4})[-/.年년]\s?(?P<m>\d{1,2})[-/.月월]\s?(?P<d>\d{1,2})[日일]?"
    r"|(?P<a>\d{1,2})[./-](?P<b>\d{1,2})[./-](?P<year>\d{4}|\d{2})"
    rf"|(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.)?[\s-]+(?:of |de )?{_MONTH}[\s,-]+(?:de |del )?"
    r"(?P<of>\d{4})"
    rf"|{_MONTH.replace('month', 'named')}\s+(?:(?P<on>\d{{1,2}})(?:st|nd|rd|th)?,?\s+)?"
    r"(?P<in>\d{4}))"
    r"(?!\d)",
    re.IGNORECASE,
)


class Quantity(NamedTuple):
    """A number: its possible values, unit, decimals, and position in the text."""

    values: frozenset[Decimal]
    unit: str | None
    decimals: int
    digits: str
    start: int
    end: int


class Day(NamedTuple):
    """A date: the possible days (year, month, day), and its position in the text.

    The day is 0 if the date has only a month.
    """

    days: frozenset[tuple[int, int, int]]
    start: int
    end: int

    @property
    def of_month(self) -> bool:
        """Whether the date has a month but no day."""
        return any(day == 0 for _, _, day in self.days)


def quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers in ``text`` with their units, in order.

    >>> [(sorted(q.values), q.unit) for q in quantities("EUR 1.250,50, or thirty days")]
    [([Decimal('1250.50')], 'EUR'), ([Decimal('30')], 'day')]
    """
    folded = fold_forms(text)
    characters = list(spaced_text(folded))
    for match in () if folded.isascii() else _CHINESE.finditer(folded):
        characters[match.start() : match.end()] = match[0]
    for match in _QUANTITY.finditer("".join(characters)):
        digits = match["number"]
        if digits is None:
            values, decimals = {_spelled(match["word"].lower())}, 0
        else:
            values, decimals = _values(digits)
        scale = next((by for place, by in enumerate(_SCALES) if match[f"s{place}"]), Decimal(1))
        scale *= Decimal(10) ** int(match["power"] or 0)
        # A single letter may be a unit or a factor: metres, millions.
        letter = re.search(r"\d\s?[kmb]$", match[0], re.IGNORECASE)
        plain = Decimal(1) if letter else scale
        sign = -1 if match["minus"] or match["sign"] in ("-", "\u2212") else 1
        unit = next((u for i, u in enumerate(_UNITS) if match[f"u{i}"] or match[f"b{i}"]), None)
        yield Quantity(
            frozenset(sign * by * value for value in values for by in {scale, plain}),
            unit,
            decimals,
            re.sub(r"\D", "", digits or ""),
            *match.span(),
        )


def same_quantity(given: Quantity, gold: Quantity) -> bool:
    """Return whether ``given`` matches the accepted quantity ``gold``.

    A missing unit is accepted, a different one is not. Whole numbers must be equal, digit by digit
    if the accepted number begins with 0; others are rounded to the accepted number's decimals.
    """
    differ = given.unit != gold.unit and frozenset((given.unit, gold.unit)) not in _ALIKE
    if given.unit and differ and (gold.unit or given.unit == "%"):
        return False
    if gold.digits.startswith("0") and len(gold.digits) > 1 and not gold.decimals:
        return given.digits == gold.digits
    unit = Decimal(1).scaleb(-gold.decimals)
    for value, gold_value in product(given.values, gold.values):
        exact = value == gold_value
        if exact or (gold.decimals and value.quantize(unit) == gold_value.quantize(unit)):
            return True
    return False


def days(text: str) -> Iterator[Day]:
    """Yield the dates in ``text``, in order; ``03/04/2024`` may be 3 April or March 4.

    >>> [sorted(day.days) for day in days("on 3 March 2024, not 2024-05-01")]
    [[(2024, 3, 3)], [(2024, 5, 1)]]
    """
    for match in _DATE.finditer(fold_forms(text)):
        part = match.groupdict()
        if part["y"]:
            dates = {(int(part["y"]), int(part["m"]), int(part["d"]))}
        elif part["year"]:
            year = int(part["year"]) + (2000 if len(part["year"]) == 2 else 0)
            first, second = int(part["a"]), int(part["b"])
            dates = {(year, second, first), (year, first, second)}
        else:
            month = _MONTHS[(part["month"] or part["named"]).lower().rstrip(".")]
            dates = {(int(part["of"] or part["in"]), month, int(part["day"] or part["on"] or 0))}
        candidates = {(y, m, d) for y, m, d in dates if 1 <= m <= 12 and d <= 31}
        if candidates:
            yield Day(frozenset(candidates), *match.span())


def same_day(given: Day, gold: Day) -> bool:
    """Return whether ``given`` is the accepted ``gold``; a month alone accepts all its days."""
    parts = 2 if gold.of_month else 3
    return bool({day[:parts] for day in given.days} & {day[:parts] for day in gold.days})


def _spelled(words: str) -> Decimal:
    """Return the value of English number words: "two thousand one hundred and five"."""
    if words in _ELSEWHERE:
        return _ELSEWHERE[words]
    total = part = Decimal(0)
    for word in re.split(r"[\s-]+", words):
        part += _SPELLED.get(word, 0)
        if power := _POWERS.get(word):
            part = max(part, Decimal(1)) * power
            if power > _POWERS["hundred"]:
                total, part = total + part, Decimal(0)
    return total + part


def _values(written: str) -> tuple[set[Decimal], int]:
    """Return the possible values of digits with separators, and how many decimals they have."""
    digits = re.sub(f"[{_THIN}]", "", written)
    marks = re.findall(r"[.,]", digits)
    if not marks:
        return {Decimal(digits)}, 0
    last = marks[-1]
    head, _, tail = digits.rpartition(last)
    integer = Decimal(re.sub(r"[.,]", "", digits))
    if marks.count(last) > 1:
        return {integer}, 0
    decimal = Decimal(f"{re.sub(r'[.,]', '', head)}.{tail}")
    if len(marks) > 1 or len(tail) != 3 or head.startswith("0"):
        return {decimal}, len(tail)
    if last == ",":
        return {integer}, 0
    return {integer, decimal}, 0
