"""The atlas as a static site: an index of models by task, and a page per series and pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextcliff_dagster.atlas.series import Series, in_unit, named_bins, unit_words
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting import caps_site, wording
from contextcliff_dagster.reporting.caps_site import CapsSite
from contextcliff_dagster.reporting.comparison import comparison_page, difference_words
from contextcliff_dagster.reporting.html.picture import (
    HEIGHT,
    WIDTH,
    Plane,
    difference_html,
    drawing,
)
from contextcliff_dagster.reporting.html.render import blocks_html, html_page, sections_html, text
from contextcliff_dagster.reporting.sections import (
    Block,
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Fold,
    Link,
    Paragraph,
    Section,
)
from contextcliff_dagster.store import slug, write_atomic

if TYPE_CHECKING:
    from contextcliff_dagster.atlas.results import Pair
    from contextcliff_dagster.atlas.sources import Source

_PAIRS_IN_WORDS = (
    "Each row compares two conditions of one model and task, by the answers that others have "
    "published. The difference is the mean score of B minus that of A. Its p-value is adjusted for "
    "all pairs of its table (Holm) and, within a pair, for all lengths."
)


def pair_file(pair: Pair) -> str:
    """Return the path of a pair's page, relative to the site."""
    a, b = pair.a, pair.b
    return f"pairs/{slug(f'{a.model}-{a.source}-{a.task}-{a.condition}-{b.condition}')}.html"


def machine_pair(pair: Pair) -> dict[str, Any]:
    """Return a pair's entry in `atlas.json`."""
    a, compared = pair.a, pair.comparison
    overall = compared.overall
    return {
        "family": pair.family,
        "model": a.model,
        "source": a.source,
        "task": a.task,
        "unit": a.unit,
        "a": a.condition,
        "b": pair.b.condition,
        "paired": compared.paired,
        "n": [compared.a.n, compared.b.n],
        "n_documents": [compared.a.n_documents, compared.b.n_documents],
        "means": [overall.mean_a, overall.mean_b],
        "difference": [overall.difference, overall.ci_low, overall.ci_high],
        "p": overall.p_value,
        "pairs_of_family": pair.of,
        "page": pair_file(pair),
    }


def pair_sections(pairs: Sequence[Pair], sources: Mapping[str, Source]) -> list[Section]:
    """Return one table of pairs for each family."""
    sections = [Section("Pairs", [Paragraph(_PAIRS_IN_WORDS)])] if pairs else []
    for source, family in dict.fromkeys((pair.a.source, pair.family) for pair in pairs):
        of_family = [pair for pair in pairs if (pair.a.source, pair.family) == (source, family)]
        rows: list[list[Cell]] = []
        for pair in of_family:
            compared = pair.comparison
            overall, n = compared.overall, f"{compared.a.n:,} / {compared.b.n:,}"
            documents = f"{compared.a.n:,} on {compared.a.n_documents:,} documents"
            rows.append([
                Code(pair.a.model),
                pair.a.task.replace("_", " "),
                f"{compared.a.name} ({wording.score(overall.mean_a)})",
                f"{compared.b.name} ({wording.score(overall.mean_b)})",
                [Link(difference_words(overall), pair_file(pair))],
                "" if overall.p_value is None else f"{overall.p_value:.2g}",
                documents if compared.paired else f"{n}, different prompts",
            ])  # fmt: skip
        head = ["model", "task", "A (score)", "B (score)", "B minus A", "p", "answers"]
        title = f"{sources[source].name}: {family}"
        sections.append(Section(title, [DataTable(head, rows, right=())]))
    return sections


def pair_page(pair: Pair, source: Source, models: Sequence[str]) -> str:
    """Return a pair's page: the sentence, both sides, the difference over length, and each bin.

    ``models``: all models of the atlas, used to leave out traps that name other models.
    """
    a, unit = pair.a, unit_words(pair.a.unit)
    (first, *others), folds = comparison_page(pair.comparison)
    blocks = [block for block in first.blocks if not isinstance(block, Figure)]
    below = [section for fold in folds for section in fold.sections]
    family = (
        f"P-values are adjusted for the {pair.of} pairs of this family, too: overall by Holm's "
        "method, each bin by the number of pairs."
    )
    about = [
        *([family] if pair.of > 1 else []),
        *dict.fromkeys([*a.notes, *pair.b.notes]),
        *own_traps(source, a.model, models),
        f"{source.citation}. Licence: {source.licence or 'none found'}.",
    ]
    facts = Section("What to know about these answers", [Bullets(about)])
    title = f"{a.model}: {a.task.replace('_', ' ')}, {pair.family}"
    body = blocks_html(blocks) + difference_html(pair.comparison)
    body += sections_html([*others, facts, *below])
    return html_page(title, in_unit(body, unit), [], None)


MARK = "atlas.json"
_SPREAD = "rules on spread"
"""Text that identifies warnings about signals which the atlas does not show."""
_WORDS = (
    "Each entry is one model on one task in one condition, from the answers that others have "
    "published. Its cap is the longest document up to which the score stays, with the stated "
    "confidence, within the stated tolerance of the score on short documents.",
    "This is no ranking. A cap belongs to its task, prompt and number of answers. Caps of other "
    "tasks, conditions or units are not comparable, and your own task needs its own measurement.",
    "Natural lengths are those that documents have by themselves. Made ones are padded or stacked "
    "up to a size, and their caps do not carry over to natural documents.",
)
_SMALL_WIDTH, _SMALL_HEIGHT, _SMALL_FOOT = 220.0, 96.0, 86.0


class Entry(NamedTuple):
    """A series with its result. ``page``: path of its page in the site, without suffix.

    ``models``: all models of its source.
    """

    series: Series
    source: Source
    result: Cliffs
    page: str
    models: Sequence[str]

    @property
    def unit(self) -> str:
        """Unit of length, for use in a sentence."""
        return unit_words(self.series.unit)

    @property
    def task(self) -> str:
        """Task with its source, for a column of the table."""
        return f"{self.source.name}: {self.series.task.replace('_', ' ')}"

    @property
    def lengths(self) -> str:
        return "natural" if self.series.natural else "made"


def entries_of(
    series: Sequence[Series], results: Mapping[str, Cliffs | None], sources: Mapping[str, Source]
) -> list[Entry]:
    """Return the series that have a result, by model and task; ``results``: by series key."""
    shown = []
    names: set[str] = set()
    for item in series:
        if (result := results[item.key]) is None:
            continue
        name = slug(f"{item.model}-{item.source}-{item.task}-{item.condition}-{item.unit}")
        while name in names:
            name += "-2"
        names.add(name)
        models = sorted({other.model for other in series if other.source == item.source})
        shown.append(Entry(item, sources[item.source], result, f"series/{name}", models))
    return sorted(shown, key=lambda e: (e.series.model, e.task, e.series.condition, e.series.unit))


def write_site(
    entries: Sequence[Entry],
    pairs: Sequence[Pair],
    few: Sequence[Series],
    sources: Mapping[str, Source],
    folder: Path,
) -> Path:
    """Write all pages, index.html, index.md and atlas.json; return the path of index.html.

    Raises:
        StoreError: the folder cannot be written.
    """
    pages = {f"{entry.page}.html": _page(entry) for entry in entries}
    models = entries[0].models if entries else ()
    pages |= {pair_file(pair): pair_page(pair, sources[pair.a.source], models) for pair in pairs}
    for old in (*folder.glob("series/*.html"), *folder.glob("pairs/*.html")):
        if f"{old.parent.name}/{old.name}" not in pages:
            old.unlink(missing_ok=True)
    for name, page in pages.items():
        write_atomic(folder / name, page.encode())
    folds = [
        Fold("What does a condition change?", pair_sections(pairs, sources)),
        Fold("Which series have too few answers?", [Section("Too few answers", _few_table(few))]),
        Fold("Where do the answers come from?", [Section("Sources", _sources(sources))]),
    ]
    return CapsSite(
        "What public results say about the safe context of models",
        MARK,
        _WORDS,
        [*map(_shown, entries)],
        [fold for fold in folds if fold.sections],
        {
            "series": _rounded([*map(machine_entry, entries)]),
            "pairs": _rounded([*map(machine_pair, pairs)]),
            "too_few": [series.key for series in few],
        },
        sparse=True,
        below=_pictures(entries),
        suffix="html",
    ).write(folder)


def _rounded(value: Any) -> Any:
    """Return ``value`` with numbers rounded, because processors differ in their last digits."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 12) if isinstance(value, float) else value


def _shown(entry: Entry) -> caps_site.Entry:
    picks = {
        "model": entry.series.model,
        "task": entry.task,
        "verdict": wording.VERDICT_PHRASE[entry.result.verdict],
        "lengths": entry.lengths,
        "unit": entry.unit,
    }
    return caps_site.Entry(entry.page, _cap(entry), picks, _facts(entry))


def machine_entry(entry: Entry) -> dict[str, Any]:
    """Return a series' entry in `atlas.json`."""
    series, result = entry.series, entry.result
    base, cliff = result.baseline, result.cliff
    return {
        "model": series.model,
        "source": series.source,
        "task": series.task,
        "condition": series.condition,
        "unit": series.unit,
        "natural": series.natural,
        "chance": series.chance,
        "verdict": result.verdict.value,
        "safe_cap": result.safe_cap_tokens,
        "midpoint": None if cliff is None else [cliff.location_tokens, cliff.ci_low, cliff.ci_high],
        "baseline": [base.mean, base.ci_low, base.ci_high],
        "tolerance": result.tolerance,
        "confidence": result.confidence,
        "n": result.n,
        "n_documents": result.n_documents,
        "lengths": [int(of(series.records["length_tokens"])) for of in (min, max)],
        "read_to": series.read_to,
        "window": series.window,
        "bins": [[row.edge_low, row.edge_high, row.n, row.mean] for row in result.bins],
        "page": f"{entry.page}.html",
    }


def _cap(entry: Entry) -> str:
    cap = entry.result.safe_cap_tokens
    return "no safe cap" if cap is None else f"{wording.tokens(cap)} {entry.unit}"


def _facts(entry: Entry) -> list[str]:
    """Return the facts that must accompany every cap."""
    result, series = entry.result, entry.series
    base, cliff = result.baseline, result.cliff
    facts = [series.condition] if series.condition else []
    facts.append(wording.VERDICT_PHRASE[result.verdict])
    if cliff is not None:
        place = wording.located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        facts.append(f"midpoint of the drop {place} {entry.unit}")
    facts.append(f"scores {wording.estimate(base.mean, base.ci_low, base.ci_high)} when short")
    documents = f" on {result.n_documents:,} documents" if series.natural else ""
    facts.append(f"{result.n:,} answers{documents}, {entry.lengths} lengths")
    return facts


def _pictures(entries: Sequence[Entry]) -> str:
    """Return small charts by task; within a task, series of one unit share the length axis."""
    parts = ["<h2>Score over length, by task</h2>\n"]
    for task in sorted({entry.task for entry in entries}):
        same = [entry for entry in entries if entry.task == task]
        panels = "".join(
            _small(entry, [e for e in same if e.series.unit == entry.series.unit]) for entry in same
        )
        parts.append(
            f"<details><summary>{text(task)}: {len(same)} series</summary>"
            f'<div class="multiples">{panels}</div></details>\n'
        )
    return "".join(parts)


def _small(entry: Entry, shared: Sequence[Entry]) -> str:
    """Return one series' small chart; its axis spans the lengths of the ``shared`` entries."""
    lengths = [p.tokens for item in shared for p in item.result.curve] or [1, 2]
    plane = Plane(lengths, foot=_SMALL_FOOT, top=6.0, sides=(0.0, _SMALL_WIDTH))
    curve, cap = entry.result.curve[::2], entry.result.safe_cap_tokens
    ends = [f"M0 {plane.y(share):g}H{_SMALL_WIDTH:g}" for share in (0.0, 1.0)]
    svg = f'<g class="grid"><path d="{"".join(ends)}"/></g>'
    svg += plane.band([(p.tokens, p.ci_low, p.ci_high) for p in curve])
    svg += plane.curve([(p.tokens, p.mean) for p in curve])
    if cap is not None:
        svg += f'<path class="cap" d="M{plane.x(cap):.0f} {_SMALL_FOOT:g}V6"/>'
    name = entry.series.model
    if entry.series.condition:
        name += f", {entry.series.condition}"
    words = f"{_cap(entry)}; {entry.result.n:,} answers"
    span = f"{min(lengths):,} to {max(lengths):,} {entry.unit}"
    return (
        f'<figure class="m0"><a href="{text(entry.page)}.html">{text(name)}</a>'
        f'<svg viewBox="0 0 {_SMALL_WIDTH:g} {_SMALL_HEIGHT:g}" role="img" '
        f'aria-label="{text(f"{name}: {words}")}">{svg}</svg>'
        f"<figcaption>{text(words)}; {span}</figcaption></figure>"
    )


def _page(entry: Entry) -> str:
    series, result, source = entry.series, entry.result, entry.source
    title = f"{series.model}: {series.task.replace('_', ' ')}"
    if series.condition:
        title += f", {series.condition}"
    facts = [_cap(entry), *_facts(entry)]
    head = f"<p><strong>{text('; '.join(facts))}.</strong></p>\n"
    head += f"<p>{text(in_unit(wording.sentence(result.safe_cap_reason), entry.unit))}</p>\n"
    warned = (
        named_bins(wording.sentence(w), result.bins) for w in result.warnings if _SPREAD not in w
    )
    notes = [*series.notes, *(in_unit(note, entry.unit) for note in warned)]
    axis = f"document length in {entry.unit}"
    label = f"Score over {axis}."
    head += (
        f'<section id="picture"><h2>Score over document length</h2>\n<figure id="chart">'
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">'
        f"{drawing([result], axis)}</svg></figure>\n"
        f"<p>Bars and band are {wording.level(result.confidence)} intervals.</p></section>\n"
    )
    unit = series.unit.removeprefix("tokens_").replace("_", " ")
    unit = f"tokens ({unit})" if unit not in (entry.unit, "tokens") else entry.unit
    method = "" if series.natural or not source.made else f", {source.made}"
    about: list[Block] = [
        Bullets([
            f"Lengths are {entry.lengths}{method}; they are counted in {unit}.",
            *notes,
            *own_traps(source, series.model, entry.models),
            f"{source.citation}. Licence: {source.licence or 'none found'}.",
            *([[Link(source.url, source.url)]] if source.url else []),
            ["Your own task needs its own measurement: ", Code("contextcliff init"), "."],
        ])
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            f"{row.edge_low:,} to {row.edge_high:,}",
            f"{row.n:,}",
            wording.estimate(row.mean, row.ci_low, row.ci_high),
        ]
        for row in result.bins
    ]
    bins = Section("Mean score by length", [DataTable([entry.unit, "answers", "mean score"], rows)])
    sections = [Section("What to know about these answers", about), bins]
    return html_page(title, head + sections_html(sections), [], None)


def own_traps(source: Source, model: str, models: Sequence[str]) -> list[str]:
    """Return a source's traps, except those that name other models."""
    return [
        trap for trap in source.traps if model in trap or not any(other in trap for other in models)
    ]


def _few_table(few: Sequence[Series]) -> list[Block]:
    rows: list[list[Cell]] = [
        [
            Code(series.model),
            series.source,
            series.task,
            series.condition or "–",
            " ".join([series.few, *series.notes]),
        ]
        for series in few
    ]
    head = ["model", "source", "task", "condition", "what it has"]
    return [DataTable(head, rows, right=())] if rows else [Paragraph("None.")]


def _sources(sources: Mapping[str, Source]) -> list[Block]:
    return [
        Bullets([
            f"{source.name}: {source.citation}. Licence: {source.licence or 'none found'}. "
            + " ".join(source.traps)
            for source in sources.values()
        ])
    ]  # fmt: skip
