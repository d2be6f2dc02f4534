"""Records as sentences, with their templates and lengths, and the types of all renderings.

Every format has one record per line, and prose one sentence per line, as in the design document:
formats differ in the form of a record, not in the separation of records. No format has a
legend before its records; CSV and Markdown begin with their header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    DOMAINS,
    SCHEMAS,
    BenchmarkName,
    Record,
    RecordSpec,
)

Format = Literal["jsonl", "prose", "csv", "markdown"]
Verbosity = Literal["standard", "terse", "descriptive"]
Order = Literal["chronological", "shuffled"]
FORMATS: tuple[Format, ...] = ("jsonl", "prose", "csv", "markdown")
FORMAT_ALIASES: Mapping[str, Format] = {"structured": "jsonl", "json": "jsonl", "md": "markdown"}


class Rendering(NamedTuple):
    """A rendered document; ``starts`` has the offset in ``text`` of each record of the data."""

    text: str
    starts: tuple[int, ...]


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_S = 86_400
LAST_SECOND = (date.max.toordinal() - _EPOCH + 1) * _DAY_S - 1
"""The last second with a date: the end of the year 9999."""

_CLOCK = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d")
_WHOLE = r"-?(?:0|[1-9]\d*)"
_NUMBER = rf"{_WHOLE}(?:\.\d+)?(?:e[+-]\d+)?"


class Form(NamedTuple):
    """A way to word one or two fields; ``pattern`` has no groups."""

    pattern: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _one_of(words: tuple[Any, ...]) -> str:
    return "(?:" + "|".join(re.escape(str(word)) for word in words) + ")"


def _ordinal(number: int) -> str:
    if 10 < number < 14:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _moment(layout: str) -> Form:
    """Return a form for Unix seconds in UTC on a 24-hour clock, where 12:00:00 is noon."""
    parts = {
        "CLOCK": _CLOCK.pattern,
        "WEEKDAY": _one_of(_WEEKDAYS),
        "MONTH": _one_of(_MONTHS),
        "ORDINAL": r"\d{1,2}(?:st|nd|rd|th)",
        "DAY": r"\d{1,2}",
        "YEAR": r"\d{4}",
        "ISO": r"\d{4}-\d\d-\d\d",
    }
    pattern = re.sub(r"\b[A-Z]{3,}\b", lambda word: parts.get(word[0], word[0]), layout)
    placeholders = re.compile(r"\b(WEEKDAY|MONTH|ORDINAL|DAY|YEAR|ISO)\b")

    @lru_cache(4096)
    def write_day(days: int) -> str:
        day = date.fromordinal(_EPOCH + days)
        words = {
            "WEEKDAY": _WEEKDAYS[day.weekday()],
            "MONTH": _MONTHS[day.month - 1],
            "ORDINAL": _ordinal(day.day),
            "DAY": str(day.day),
            "YEAR": f"{day.year:04d}",
            "ISO": day.isoformat(),
        }
        return placeholders.sub(lambda word: words[word[1]], layout)

    @lru_cache(4096)
    def read_day(text: str) -> int:
        if iso := re.search(parts["ISO"], text):
            day = date.fromisoformat(iso[0])
        else:
            month = next(number for number, name in enumerate(_MONTHS, 1) if name in text)
            numbers = [int(number) for number in re.findall(r"\d+", text)]
            day = date(max(numbers), month, min(numbers))
        days = day.toordinal() - _EPOCH
        if days < 0 or write_day(days) != text:
            raise ValueError(f"there is no such day: {text.replace('CLOCK', '').strip()}")
        return days

    def write(ts: int) -> str:
        days, second = divmod(ts, _DAY_S)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        return write_day(days).replace("CLOCK", clock)

    def read(text: str) -> int:
        clock = _CLOCK.search(text)
        assert clock is not None, text
        hours, minutes, seconds = clock[0].split(":")
        day = read_day(text.replace(clock[0], "CLOCK"))
        return day * _DAY_S + int(hours) * 3600 + int(minutes) * 60 + int(seconds)

    return Form(pattern, write, read)


def _identifier(prefix: str, words: str) -> Form:
    """Return a form for ``WH-0042`` as ``Warehouse 42``, with ``words`` before the number."""

    @lru_cache(65_536)
    def write(identifier: str) -> str:
        return f"{words}{int(identifier.removeprefix(prefix))}"

    @lru_cache(65_536)
    def read(text: str) -> str:
        return f"{prefix}{int(text.removeprefix(words)):04d}"

    return Form(re.escape(words) + r"(?:0|[1-9]\d*)", write, read)


def _in_full(prefix: str, words: str) -> Form:
    """Return a form such as ``the warehouse with identifier WH-0042``."""
    pattern = rf"{re.escape(words + prefix)}(?:\d{{4}}|[1-9]\d{{4,}})"
    return Form(pattern, lambda one: words + one, lambda text: text[len(words) :])


def _units(sign: int) -> Form:
    """Return a form such as ``3 units``; ``sign`` is -1 for outgoing, negative quantities."""

    def write(quantity: int) -> str:
        number = sign * quantity
        return "1 unit" if number == 1 else f"{number} units"

    def read(text: str) -> int:
        return _whole(text.partition(" ")[0]) * sign

    return Form(rf"(?:1 unit|(?!1 ){_WHOLE} units)", write, read)


def _change(units: bool) -> Form:
    """Return a form for a change up or down, such as ``reduced by 3``."""

    def write(change: int) -> str:
        if not change:
            return "left unchanged"
        unit = (" unit" if abs(change) == 1 else " units") if units else ""
        return f"{'increased' if change > 0 else 'reduced'} by {abs(change)}{unit}"

    def read(text: str) -> int:
        if text == "left unchanged":
            return 0
        way, _, number, *_ = text.split(" ")
        return int(number) if way == "increased" else -int(number)

    number = r"(?:1 unit|(?!1 )[1-9]\d* units)" if units else r"[1-9]\d*"
    return Form(rf"(?:left unchanged|(?:increased|reduced) by {number})", write, read)


def _whole(text: str) -> int:
    if text == "-0":
        raise ValueError("-0 is not a quantity")
    return int(text)


def _an(word: object) -> str:
    """Return ``word`` with its indefinite article; ``xlarge`` is pronounced with "ex"."""
    return f"an {word}" if str(word)[0] in "aeiou" or word == "xlarge" else f"a {word}"


_POSITIVE = {
    "color": "is {0}",
    "accent": "has {1} accent",
    "size": "is {0} in size",
    "fit": "has {1} fit",
    "rating": "has a rating of {0}",
    "grade": "has a grade of {0}",
    "origin": "has its origin in {0}",
    "destination": "has {0} as its destination",
    "owner": "has {0} as its owner",
    "inspector": "has {0} as its inspector",
}
"""Attribute -> predicate of an entity; ``{0}`` is the value, ``{1}`` the value with article."""


def _negative(clause: str) -> str:
    verb, _, tail = clause.partition(" ")
    return f"{'is not' if verb == 'is' else 'does not have'} {tail}"


def _clauses(words: Callable[[str], str]) -> Form:
    """Return a form for an attribute and its value as a predicate, such as ``is not purple``."""
    texts = {
        (attribute, value): words(_POSITIVE[attribute].format(value, _an(value)))
        for attribute, domain in DOMAINS.items()
        for value in domain
    }
    back = {text: pair for pair, text in texts.items()}
    return Form(_one_of(tuple(back)), texts.__getitem__, back.__getitem__)


def _shared(attributes: tuple[str, str]) -> str:
    """Return the name of an attribute that is given twice; raise ValueError if the two differ."""
    first, second = attributes
    if first != second:
        raise ValueError(f"an eq record is about one attribute, not {first} and {second}")
    return first


_VALUES = tuple(dict.fromkeys(value for domain in DOMAINS.values() for value in domain))
_ATTRIBUTE = _one_of(tuple(DOMAINS))

FORMS: Mapping[str, Form] = {
    "warehouse": _identifier("WH-", "Warehouse "),
    "entity": _identifier("E-", "Entity "),
    "node": _identifier("N-", "Node "),
    "sku": _in_full("SKU-", ""),
    "full_warehouse": _in_full("WH-", "the warehouse with identifier "),
    "full_entity": _in_full("E-", "the entity with identifier "),
    "full_node": _in_full("N-", "the node with identifier "),
    "full_sku": _in_full("SKU-", "the item with stock-keeping unit "),
    "clock_first": _moment("CLOCK on MONTH ORDINAL, YEAR"),
    "date_first": _moment("DAY MONTH YEAR at CLOCK"),
    "digits": _moment("ISO CLOCK"),
    "weekday": _moment("CLOCK UTC on WEEKDAY, MONTH ORDINAL, YEAR"),
    "units": _units(1),
    "units_out": _units(-1),
    "stock_change": _change(units=True),
    "change": _change(units=False),
    "integer": Form(_WHOLE, str, _whole),
    "number": Form(_NUMBER, lambda value: repr(value).removesuffix(".0"), float),
    "attribute": Form(_ATTRIBUTE, str, str),
    "same_attribute": Form(_ATTRIBUTE, _shared, lambda text: (text, text)),
    "value": Form(_one_of(_VALUES), str, lambda text: int(text) if text.isdigit() else text),
    "holds": _clauses(str),
    "fails": _clauses(_negative),
}
"""Name -> form. A form named like a `FieldKind` is the default of that kind."""

SLOTS: Mapping[str, tuple[str, str]] = {
    "at": ("ts", "clock_first"),
    "on": ("ts", "date_first"),
    "moment": ("ts", "digits"),
    "full_moment": ("ts", "weekday"),
    "units": ("qty", "units"),
    "units_out": ("qty", "units_out"),
    "stock_change": ("qty", "stock_change"),
    "full_warehouse": ("warehouse", "full_warehouse"),
    "full_sku": ("sku", "full_sku"),
    "full_dest": ("dest", "full_warehouse"),
    "full_source": ("source", "full_warehouse"),
    "holds": ("attr,value", "holds"),
    "fails": ("attr,value", "fails"),
    "attribute": ("a1,a2", "same_attribute"),
    "if_holds": ("if_attr,if_value", "holds"),
    "then_holds": ("then_attr,then_value", "holds"),
    "change": ("value", "change"),
    "full_from": ("from", "full_node"),
    "full_to": ("to", "full_node"),
    "full_id": ("id", "full_node"),
    "full_entity": ("entity", "full_entity"),
    "full_e1": ("e1", "full_entity"),
    "full_e2": ("e2", "full_entity"),
    "full_if": ("if_entity", "full_entity"),
    "full_then": ("then_entity", "full_entity"),
}
"""Slot -> its field, or two joined by a comma, and its form (`FORMS`)."""

_SLOT = re.compile(r"\{([^{}]+)\}")


class Template(NamedTuple):
    """A sentence template; ``pattern`` has one group per slot, in slot order."""

    spec: RecordSpec
    verbosity: Verbosity
    sentence: str
    pattern: str
    slots: tuple[tuple[Callable[[Record], Any], Form, tuple[str, ...]], ...]

    def write(self, record: Record) -> str:
        """Return the sentence for ``record``."""
        return self.sentence % tuple(form.write(get(record)) for get, form, _ in self.slots)

    def read(self, words: tuple[str, ...]) -> dict[str, Any]:
        """Return the record whose slots have the given ``words``."""
        fields: dict[str, Any] = dict(self.spec.fixed)
        for word, (_, form, keys) in zip(words, self.slots, strict=True):
            value = form.read(word)
            if len(keys) == 1:
                fields[keys[0]] = value
            else:
                fields.update(zip(keys, value, strict=True))
        return {field.key: fields[field.key] for field in self.spec.fields}


def _template(spec: RecordSpec, verbosity: Verbosity, text: str) -> Template:
    kinds: dict[str, str] = {field.key: field.kind for field in spec.fields}
    slots: list[tuple[Callable[[Record], Any], Form, tuple[str, ...]]] = []
    for slot in _SLOT.findall(text):
        names, form = SLOTS.get(slot) or (slot, kinds[slot])
        keys = tuple(names.split(","))
        slots.append((itemgetter(*keys), FORMS[form], keys))
    around = [re.escape(part) for part in _SLOT.split(text)[::2]]
    pattern = around[0] + "".join(
        f"({form.pattern}){after}" for (_, form, _), after in zip(slots, around[1:], strict=True)
    )
    return Template(spec, verbosity, _SLOT.sub("%s", text), pattern, tuple(slots))


@lru_cache(8)
def templates(benchmark: BenchmarkName) -> Mapping[tuple[str, Verbosity], tuple[Template, ...]]:
    """Return the templates of a benchmark by record type and verbosity."""
    return {
        (spec.name, verbosity): tuple(_template(spec, verbosity, text) for text in texts)
        for spec in SCHEMAS[benchmark]
        for verbosity, texts in SENTENCES[benchmark][spec.name].items()
    }


def all_templates(benchmark: BenchmarkName) -> Iterator[Template]:
    """Yield the templates of all types and verbosities."""
    for some in templates(benchmark).values():
        yield from some


class SentenceReader:
    """A reader of the sentences of one benchmark."""

    def __init__(self, benchmark: BenchmarkName) -> None:
        """Compile all templates into one pattern; the last group matched identifies one."""
        patterns = []
        self._by_group: dict[int, tuple[Template, slice]] = {}
        group = 1
        for template in all_templates(benchmark):
            patterns.append(f"({template.pattern})")
            size = len(template.slots)
            self._by_group[group] = (template, slice(group, group + size))
            group += size + 1
        self._pattern = re.compile("|".join(patterns))

    def read(self, sentence: str) -> dict[str, Any]:
        """Return the record in ``sentence`` with its values unchecked; raise ValueError."""
        match = self._pattern.fullmatch(sentence)
        if match is None or match.lastindex is None:
            raise ValueError("no sentence of this benchmark reads like this")
        template, words = self._by_group[match.lastindex]
        return template.read(match.groups()[words])


sentence_reader = lru_cache(8)(SentenceReader)
"""Return the reader of a benchmark, compiled once."""

SENTENCES: Mapping[BenchmarkName, Mapping[str, Mapping[Verbosity, tuple[str, ...]]]] = {
    "warehouse": {
        "initial": {
            "standard": (
                "At {at}, {warehouse} held an initial stock of {units} of {sku}.",
                "{warehouse} started with an initial stock of {units} of {sku} at {at}.",
                "On {on}, the initial stock of {sku} at {warehouse} was {units}.",
                "The initial stock of {warehouse} on {on} included {units} of {sku}.",
            ),
            "terse": ("{moment}: {warehouse} initially had {units} of {sku}.",),
            "descriptive": (
                "When the inventory was opened at {full_moment}, {full_warehouse} held an "
                "initial stock of {units} of {full_sku}.",
                "According to the opening inventory taken at {full_moment}, the initial stock of "
                "{full_sku} at {full_warehouse} amounted to {units}.",
            ),
        },
        "sale": {
            "standard": (
                "At {at}, {warehouse} sold {units_out} of {sku}.",
                "{warehouse} sold {units_out} of {sku} at {at}.",
                "On {on}, a sale of {units_out} of {sku} was recorded at {warehouse}.",
                "A sale on {on} took {units_out} of {sku} out of {warehouse}.",
            ),
            "terse": ("{moment}: {warehouse} sold {units_out} of {sku}.",),
            "descriptive": (
                "In a sale that was recorded at {full_moment}, {full_warehouse} sold {units_out} "
                "of {full_sku} to a customer.",
                "At {full_moment}, a sale to a customer took {units_out} of {full_sku} out of "
                "the stock of {full_warehouse}.",
            ),
        },
        "restock": {
            "standard": (
                "At {at}, {warehouse} was restocked with {units} of {sku}.",
                "{warehouse} was restocked with {units} of {sku} at {at}.",
                "On {on}, a restock added {units} of {sku} at {warehouse}.",
                "A restock on {on} brought {units} of {sku} into {warehouse}.",
            ),
            "terse": ("{moment}: {warehouse} restocked {units} of {sku}.",),
            "descriptive": (
                "In a restock that was recorded at {full_moment}, {full_warehouse} took delivery "
                "of {units} of {full_sku} from a supplier.",
                "At {full_moment}, a restock by a supplier brought {units} of {full_sku} into "
                "the stock of {full_warehouse}.",
            ),
        },
        "transfer_out": {
            "standard": (
                "At {at}, {warehouse} transferred {units_out} of {sku} to {dest}.",
                "{warehouse} sent {units_out} of {sku} by transfer to {dest} at {at}.",
                "On {on}, {units_out} of {sku} left {warehouse} on a transfer to {dest}.",
                "A transfer on {on} took {units_out} of {sku} out of {warehouse}, bound for "
                "{dest}.",
            ),
            "terse": ("{moment}: {warehouse} transferred {units_out} of {sku} to {dest}.",),
            "descriptive": (
                "In an outgoing transfer that was recorded at {full_moment}, {full_warehouse} "
                "sent {units_out} of {full_sku} to {full_dest}.",
                "At {full_moment}, a transfer took {units_out} of {full_sku} out of the stock of "
                "{full_warehouse}, and its destination was {full_dest}.",
            ),
        },
        "transfer_in": {
            "standard": (
                "At {at}, {warehouse} received {units} of {sku} by transfer from {source}.",
                "{warehouse} took in {units} of {sku} by transfer from {source} at {at}.",
                "On {on}, {units} of {sku} arrived at {warehouse} on a transfer from {source}.",
                "A transfer on {on} brought {units} of {sku} into {warehouse}, coming from "
                "{source}.",
            ),
            "terse": (
                "{moment}: {warehouse} received {units} of {sku} transferred from {source}.",
            ),
            "descriptive": (
                "In an incoming transfer that was recorded at {full_moment}, {full_warehouse} "
                "received {units} of {full_sku} from {full_source}.",
                "At {full_moment}, a transfer brought {units} of {full_sku} into the stock of "
                "{full_warehouse}, and it came from {full_source}.",
            ),
        },
        "adjustment": {
            "standard": (
                "At {at}, the stock of {sku} at {warehouse} was {stock_change} in an adjustment.",
                "In an adjustment at {at}, the stock of {sku} at {warehouse} was {stock_change}.",
                "On {on}, {warehouse} made an adjustment, and its stock of {sku} was "
                "{stock_change}.",
                "{warehouse} had its stock of {sku} {stock_change} in an adjustment on {on}.",
            ),
            "terse": ("{moment}: adjustment at {warehouse}, {sku} {stock_change}.",),
            "descriptive": (
                "In an adjustment that was recorded after a stock count at {full_moment}, the "
                "stock of {full_sku} at {full_warehouse} was {stock_change}.",
                "At {full_moment}, an adjustment was made in which the recorded stock of "
                "{full_sku} at {full_warehouse} was {stock_change}.",
            ),
        },
    },
    "constraints": {
        "fact": {
            "standard": (
                "{entity} {holds}.",
                "The {attr} of {entity} is {value}.",
                "{entity} has {value} as its {attr}.",
                "It is known that {entity} {holds}.",
            ),
            "terse": ("{entity}'s {attr} is {value}.",),
            "descriptive": (
                "It has been established as a fact that the attribute {attr} of {full_entity} "
                "has the value {value}.",
                "For {full_entity}, the value of the attribute {attr} is known to be {value}.",
            ),
        },
        "eq": {
            "standard": (
                "{e1} and {e2} have the same {attribute}.",
                "{e1} has the same {attribute} as {e2}.",
                "The {attribute} of {e1} equals that of {e2}.",
                "{e1} shares its {attribute} with {e2}.",
            ),
            "terse": ("{e1} and {e2} match in {attribute}.",),
            "descriptive": (
                "The value of the attribute {attribute} is the same for {full_e1} and for "
                "{full_e2}.",
                "With regard to the attribute {attribute}, {full_e1} has exactly the same value "
                "as {full_e2}.",
            ),
        },
        "neq": {
            "standard": (
                "{entity} {fails}.",
                "The {attr} of {entity} is not {value}.",
                "{entity} does not have {value} as its {attr}.",
                "The {attr} of {entity} cannot be {value}.",
            ),
            "terse": ("{entity}'s {attr} is not {value}.",),
            "descriptive": (
                "It has been ruled out that the attribute {attr} of {full_entity} has the value "
                "{value}.",
                "For {full_entity}, the value of the attribute {attr} is known to be something "
                "other than {value}.",
            ),
        },
        "impl": {
            "standard": (
                "If {if_entity} {if_holds}, then {then_entity} {then_holds}.",
                "{then_entity} {then_holds} if {if_entity} {if_holds}.",
                "Whenever {if_entity} {if_holds}, {then_entity} {then_holds}.",
                "If the {if_attr} of {if_entity} is {if_value}, the {then_attr} of {then_entity} "
                "is {then_value}.",
            ),
            "terse": (
                "If {if_entity}'s {if_attr} is {if_value}, {then_entity}'s {then_attr} is "
                "{then_value}.",
            ),
            "descriptive": (
                "If it is the case that the attribute {if_attr} of {full_if} has the value "
                "{if_value}, then it follows that the attribute {then_attr} of {full_then} has "
                "the value {then_value}.",
                "The attribute {then_attr} of {full_then} has the value {then_value} provided "
                "that the attribute {if_attr} of {full_if} has the value {if_value}.",
            ),
        },
        "mut": {
            "standard": (
                "The {a1} of {e1} is the same as the {a2} of {e2}.",
                "The {a1} of {e1} and the {a2} of {e2} are the same.",
                "The {a1} of {e1} equals the {a2} of {e2}.",
                "The {a1} of {e1} matches the {a2} of {e2}.",
            ),
            "terse": ("{e1}'s {a1} is {e2}'s {a2}.",),
            "descriptive": (
                "The value of the attribute {a1} of {full_e1} is the same as the value of the "
                "attribute {a2} of {full_e2}.",
                "Whatever value the attribute {a1} of {full_e1} has, the attribute {a2} of "
                "{full_e2} has the same value.",
            ),
        },
    },
    "network": {
        "node": {
            "standard": (
                "{id} exists in the network.",
                "{id} is part of the network.",
                "The network includes {id}.",
                "{id} is one of the nodes of the network.",
            ),
            "terse": ("{id} exists.",),
            "descriptive": (
                "Among the nodes that make up the network, there is {full_id}.",
                "The nodes that make up the network include {full_id}.",
            ),
        },
        "edge": {
            "standard": (
                "There is a connection from {from} to {to} with initial weight {weight}.",
                "{from} is connected to {to} with an initial weight of {weight}.",
                "A connection with an initial weight of {weight} leads from {from} to {to}.",
                "The connection from {from} to {to} has an initial weight of {weight}.",
            ),
            "terse": ("{from} connects to {to}, initial weight {weight}.",),
            "descriptive": (
                "In the network as it was set up, there is a directed connection that leads from "
                "{full_from} to {full_to} and has an initial weight of {weight}.",
                "The initial weight of the connection that leads from {full_from} to {full_to} "
                "is {weight}, as the network was set up.",
            ),
        },
        "set": {
            "standard": (
                "At {at}, the connection from {from} to {to} was updated to weight {value}.",
                "The weight of the connection from {from} to {to} was set to {value} at {at}.",
                "On {on}, the connection from {from} to {to} was given a weight of {value}.",
                "An update on {on} set the weight of the connection from {from} to {to} to "
                "{value}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} set to {value}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the weight of the connection "
                "that leads from {full_from} to {full_to} was set to a new value of {value}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} was given a new weight of {value}.",
            ),
        },
        "add": {
            "standard": (
                "At {at}, the weight of the connection from {from} to {to} was {change}.",
                "The weight of the connection from {from} to {to} was {change} at {at}.",
                "On {on}, the connection from {from} to {to} had its weight {change}.",
                "In an update on {on}, the weight of the connection from {from} to {to} was "
                "{change}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} {change}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the previous weight of the "
                "connection that leads from {full_from} to {full_to} was {change}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} had its weight {change}.",
            ),
        },
        "multiply": {
            "standard": (
                "At {at}, the weight of the connection from {from} to {to} was multiplied by "
                "{value}.",
                "The weight of the connection from {from} to {to} was multiplied by {value} at "
                "{at}.",
                "On {on}, the connection from {from} to {to} had its weight multiplied by {value}.",
                "An update on {on} multiplied the weight of the connection from {from} to {to} "
                "by {value}.",
            ),
            "terse": ("{moment}: weight from {from} to {to} multiplied by {value}.",),
            "descriptive": (
                "In an update that was recorded at {full_moment}, the previous weight of the "
                "connection that leads from {full_from} to {full_to} was multiplied by a factor "
                "of {value}.",
                "As the result of an update carried out at {full_moment}, the connection that "
                "leads from {full_from} to {full_to} had its weight multiplied by a factor of "
                "{value}.",
            ),
        },
    },
}
