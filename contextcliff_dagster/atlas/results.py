"""Results of the atlas's series and pairs, cached by their inputs.

A pair is one model and task under two conditions; its result is the score difference over length.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from contextcliff_dagster.analysis import METHOD_VERSION
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.atlas.series import (
    LEAST_ANSWERS,
    LEAST_DOCUMENTS,
    Series,
    named_bins,
    unit_words,
)
from contextcliff_dagster.contracts import RESULT_VERSION, UNSCORED_TAGS, ContextCliffError
from contextcliff_dagster.contracts.results import Cliffs, Comparison, from_json, to_json
from contextcliff_dagster.contracts.results.comparison import Differing, DifferingBin, LossShift
from contextcliff_dagster.contracts.results.json_form import nulls
from contextcliff_dagster.reporting.wording import two_digits
from contextcliff_dagster.store import write_atomic

Result = TypeVar("Result")
_SAME_LENGTH = 0.05
MADE_AT = "2000-01-01T00:00:00+00:00"
"""Fixed time of every result, so that the same tables give the same atlas."""


class Kept:
    """A cache folder of results, keyed by the hash of their inputs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()

    def result(self, kind: type[Result], of: str, make: Callable[[], Result]) -> Result:
        """Return the result of ``kind`` for the inputs ``of``, cached or computed by ``make``.

        Raises:
            StoreError: the folder cannot be written.
        """
        stated = f"{kind.__name__} {RESULT_VERSION} {METHOD_VERSION} {of}"
        file = self._folder / f"{hashlib.sha256(stated.encode()).hexdigest()[:24]}.json"
        self._names.add(file.name)
        try:
            return from_json(kind, json.loads(file.read_bytes()))
        except (OSError, ValueError, ContextCliffError):
            result = make()
        write_atomic(file, json.dumps(to_json(result), ensure_ascii=False).encode())
        return result

    def forget_others(self) -> None:
        """Remove the results that were not requested."""
        for file in self._folder.glob("*.json"):
            if file.name not in self._names:
                file.unlink(missing_ok=True)


def result_of(series: Series, kept: Kept) -> Cliffs | None:
    """Return the result of a series; ``None`` if it has too few answers.

    Raises:
        StoreError: ``kept`` cannot be written.
    """
    if series.few:
        return None
    return kept.result(Cliffs, series.state, lambda: _analysed(series))


def _analysed(series: Series) -> Cliffs:
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model

    settings = AnalysisSettings(chance=series.chance, second_opinions=False)
    context = ProfileContext(
        series.model, task=series.task, window_tokens=series.window, created_at=MADE_AT
    )
    return profile_model(series.records, [], settings, context).cliffs


if TYPE_CHECKING:
    from contextcliff_dagster.atlas.sources import Source

    Row = TypeVar("Row", Differing, DifferingBin)


class Pair(NamedTuple):
    """Two series of one model and task.

    P-values of ``comparison`` are adjusted for the ``of`` pairs of its ``family`` in the source.
    """

    family: str
    a: Series
    b: Series
    of: int
    comparison: Comparison


def pairs_of(
    series: Sequence[Series],
    results: Mapping[str, Cliffs | None],
    sources: Mapping[str, Source],
    kept: Kept,
) -> Iterator[Pair]:
    """Yield the sources' pairs with enough answers, in order, family by family.

    ``results``: series key -> result.

    Raises:
        ContextCliffError: a source names a condition that its table does not have.
        StoreError: ``kept`` cannot be written.
    """
    for name, source in sources.items():
        in_source = [item for item in series if item.source == name]
        for condition in (value for pair in source.pairs for value in (pair.a, *pair.b)):
            words = source.words(condition)
            if not any(_exchanged(s.condition, words, "") != s.condition for s in in_source):
                raise ContextCliffError(
                    f"Source {name} pairs the condition {condition!r}, which its table does not "
                    "have; use values of the columns of `series`."
                )
        by_key = {item.key: item for item in in_source}
        for family in dict.fromkeys(pair.name for pair in source.pairs):
            outcomes = []
            for conditions in source.pairs:
                if conditions.name != family:
                    continue
                first = source.words(conditions.a)
                for side in in_source:
                    for second in map(source.words, conditions.b):
                        condition = _exchanged(side.condition, first, second)
                        pair = by_key.get(replace(side, condition=condition).key)
                        if condition != side.condition and pair is not None:
                            compared = _compared(side, pair, (first, second), results, kept)
                            outcomes += [] if compared is None else [(side, pair, compared)]
            adjusted = _in_family([comparison for *_, comparison in outcomes])
            for (a, b, _), comparison in zip(outcomes, adjusted, strict=True):
                yield Pair(family, a, b, len(outcomes), comparison)


def _exchanged(condition: str, a: str, b: str) -> str:
    """Replace the part ``a`` of a condition by ``b``; words of other columns stay."""
    return f", {condition}, ".replace(f", {a}, ", f", {b}, ", 1)[2:-2]


def _compared(
    a: Series,
    b: Series,
    names: tuple[str, str],
    results: Mapping[str, Cliffs | None],
    kept: Kept,
) -> Comparison | None:
    from contextcliff_dagster.analysis.comparison import Measured, compare

    scored = [side.records[~side.records["failure"].isin(UNSCORED_TAGS)] for side in (a, b)]
    if min(map(len, scored)) < LEAST_ANSWERS:
        return None
    settings = AnalysisSettings(chance=a.chance, second_opinions=False)

    def make() -> Comparison:
        alike = _same_lengths(a, b)
        sides = [
            Measured(name, side.records, results.get(side.key) if alike else None)
            for name, side in zip(names, (a, b), strict=True)
        ]
        low, high = (int(of(b.records["length_tokens"])) for of in (min, max))
        words = f"{names[1]} has texts of {low:,} to {high:,} tokens; the lengths are those of A."
        notes = [] if alike else [f"{words[:1].upper()}{words[1:]}"]
        found = compare(sides[0], sides[1], [], settings, notes=notes, created_at=MADE_AT)
        return found if alike else replace(found, loss_shift=nulls(LossShift), midpoint_shift=None)

    comparison = kept.result(Comparison, f"{names} {a.state}{b.state}", make)
    answers = min(side.n for side in (comparison.a, comparison.b))
    documents = min(side.n_documents for side in (comparison.a, comparison.b))
    few = answers < LEAST_ANSWERS or (a.natural and documents < LEAST_DOCUMENTS)
    return None if few else comparison


def _same_lengths(a: Series, b: Series) -> bool:
    """Return whether the examples answered in both series have the same lengths in both."""
    lengths = [
        side.records.groupby(["document_id", "example_id"])["length_tokens"].first()
        for side in (a, b)
    ]
    ratio = (lengths[0] / lengths[1]).dropna()
    return ratio.empty or bool(abs(ratio.median() - 1) < _SAME_LENGTH)


def _in_family(comparisons: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield each comparison with p-values adjusted for all: overall by Holm, bins by Bonferroni.

    A comparison already adjusts for its own bins and overall difference.
    """
    from contextcliff_dagster.analysis.comparison import sentence
    from contextcliff_dagster.analysis.statistics.rank_tests import holm

    overall = holm([comparison.overall.p_value for comparison in comparisons])
    for comparison, p in zip(comparisons, overall, strict=True):
        alpha = 1.0 - comparison.confidence
        bins = [
            _adjusted(
                row, None if row.p_value is None else min(row.p_value * len(overall), 1.0), alpha
            )
            for row in comparison.bins
        ]
        adjusted = replace(comparison, overall=_adjusted(comparison.overall, p, alpha), bins=bins)
        words = named_bins(sentence(adjusted), adjusted.bins)
        yield replace(adjusted, sentence=f"{words[:1].upper()}{words[1:]}")


def _adjusted(row: Row, p_value: float | None, alpha: float) -> Row:
    """Return ``row`` with the p-value, its interval widened to 0 unless significant."""
    if p_value is None or p_value <= alpha or row.ci_low is None or row.ci_high is None:
        return replace(row, p_value=p_value)
    return replace(row, p_value=p_value, ci_low=min(row.ci_low, 0.0), ci_high=max(row.ci_high, 0.0))


_FILE = Path(__file__).with_name("known.json")


def known_of(model: str) -> dict[str, Any]:
    """Return the published series of all models whose names contain ``model``, with sources.

    Raises:
        ContextCliffError: there is no such model.
    """
    summary, series = _summary()
    query = _bare(model.rpartition("/")[2])
    matches = [entry for entry in series if any(query in _bare(name) for name in entry["names"])]
    if not matches or not query:
        names = sorted({entry["model"] for entry in series})
        near = ", ".join(difflib.get_close_matches(model[:60], names, 5, 0.0))
        raise ContextCliffError(
            f"No published outcomes of {model[:60]!r} are known; the nearest names of {len(names)} "
            f"are {near}."
        )
    cited = {entry["source"]: summary["sources"][entry["source"]] for entry in matches}
    return {"gathered": summary["gathered"], "sources": cited, "series": matches}


def sampling_range(model: str, window: int | None = None) -> str | None:
    """Return the lengths worth sampling for a model, as a sentence; ``None`` if nothing is known.

    They range from a third of the shortest midpoint of a drop (tokens) to twice the longest, among
    this model's series (its identifier with or without a date), but end at its ``window``.
    """
    summary, series = _summary()
    name = model.rpartition("/")[2].casefold()
    places = [
        entry["midpoint"][0]
        for entry in series
        if entry["midpoint"]
        and unit_words(entry["unit"]) == "tokens"
        and any(re.fullmatch(rf"{re.escape(alias)}(-\d[\w.-]*)?", name) for alias in entry["names"])
    ]
    if not places:
        return None
    low, high = two_digits(min(places)), two_digits(max(places))
    models = {entry["model"] for entry in series if name in entry["names"]}
    windows = [summary["windows"][name] for name in models if name in summary["windows"]]
    limit = min([2 * high, *windows, *([window] if window else [])])
    longest = two_digits(limit)
    longest -= 10 ** (len(str(limit)) - 2) if longest > limit else 0
    where = f"between {low:,} and {high:,}" if low < high else f"at {low:,}"
    return (
        f"published outcomes put the midpoint of this model's drop {where} tokens, by task: sample "
        f"documents of {two_digits(low / 3):,} to {longest:,} tokens."
    )


def _bare(name: str) -> str:
    """Return only the letters and digits, because spellings differ in blanks, dots and hyphens."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _summary() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    summary = json.loads(_FILE.read_text(encoding="utf-8"))
    series = [dict(zip(summary["keys"], row, strict=True)) for row in summary["series"]]
    for entry in series:
        others = [name for name, model in summary["aliases"].items() if model == entry["model"]]
        entry["names"] = [name.casefold() for name in (entry["model"], *others)]
    return summary, series
