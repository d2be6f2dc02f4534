"""Sentences as templates: records are written with one, and recognised by all.

No two templates read the same sentence as different records, so that one alternation of them all
reads every prose document, of whatever verbosity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from contextcliff_dagster.extensions.utilization.benchmarks.data import BenchmarkName, Record
from contextcliff_dagster.extensions.utilization.benchmarks.schema import SCHEMAS, RecordSpec
from contextcliff_dagster.extensions.utilization.rendering.formats import Verbosity
from contextcliff_dagster.extensions.utilization.rendering.sentences import SENTENCES
from contextcliff_dagster.extensions.utilization.rendering.words import FORMS, Form

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
"""Slot -> its field, or two joined by a comma, and its form (`words.FORMS`)."""


_SLOT = re.compile(r"\{([^{}]+)\}")


class Template(NamedTuple):
    """One sentence; ``pattern`` has one group for each slot, in the order of the slots."""

    spec: RecordSpec
    verbosity: Verbosity
    sentence: str
    pattern: str
    slots: tuple[tuple[Callable[[Record], Any], Form, tuple[str, ...]], ...]

    def write(self, record: Record) -> str:
        """Return the sentence that says ``record``."""
        return self.sentence % tuple(form.write(get(record)) for get, form, _ in self.slots)

    def read(self, words: tuple[str, ...]) -> dict[str, Any]:
        """Return the record of which ``words`` fill the slots."""
        given: dict[str, Any] = dict(self.spec.fixed)
        for word, (_, form, keys) in zip(words, self.slots, strict=True):
            value = form.read(word)
            if len(keys) == 1:
                given[keys[0]] = value
            else:
                given.update(zip(keys, value, strict=True))
        return {field.key: given[field.key] for field in self.spec.fields}


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
    """Return the templates of each type of record and verbosity."""
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
    """Reads the sentences of one benchmark."""

    def __init__(self, benchmark: BenchmarkName) -> None:
        """Compile all templates to one alternation; the last group to close tells which it was."""
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
        """Return the record that ``sentence`` says, its values unchecked.

        Raises:
            ValueError: it is a sentence of no template.
        """
        match = self._pattern.fullmatch(sentence)
        if match is None or match.lastindex is None:
            raise ValueError("no sentence of this benchmark reads like this")
        template, words = self._by_group[match.lastindex]
        return template.read(match.groups()[words])


@lru_cache(8)
def sentence_reader(benchmark: BenchmarkName) -> SentenceReader:
    """Return the reader of ``benchmark``, compiled once."""
    return SentenceReader(benchmark)
