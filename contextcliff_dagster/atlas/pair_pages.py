"""Pages of pairs: all of them by family, and one for each with its difference over length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.atlas.series import in_unit, unit_words
from contextcliff_dagster.reporting.comparison import comparison_page, difference_words
from contextcliff_dagster.reporting.html.picture import difference_html
from contextcliff_dagster.reporting.html.render import blocks_html, html_page, sections_html
from contextcliff_dagster.reporting.sections import (
    Bullets,
    Cell,
    Code,
    DataTable,
    Figure,
    Link,
    Paragraph,
    Section,
)
from contextcliff_dagster.reporting.wording.number_format import score
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.atlas.results import Pair
    from contextcliff_dagster.atlas.sources import Source

_WORDS = (
    "Each row compares two conditions of one model and task, by the answers that others have "
    "published. The difference is the mean score of B minus that of A. Its p-value is adjusted for "
    "all pairs of its table (Holm) and, within a pair, for all lengths."
)


def pair_file(pair: Pair) -> str:
    """The page of a pair, relative to the site."""
    a, b = pair.a, pair.b
    return f"pairs/{slug(f'{a.model}-{a.source}-{a.task}-{a.condition}-{b.condition}')}.html"


def machine_pair(pair: Pair) -> dict[str, Any]:
    """What `atlas.json` says of a pair."""
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
    """All pairs, a table for each family."""
    sections = [Section("Pairs", [Paragraph(_WORDS)])] if pairs else []
    for source, family in dict.fromkeys((pair.a.source, pair.family) for pair in pairs):
        own = [pair for pair in pairs if (pair.a.source, pair.family) == (source, family)]
        rows: list[list[Cell]] = []
        for pair in own:
            compared = pair.comparison
            overall, n = compared.overall, f"{compared.a.n:,} / {compared.b.n:,}"
            documents = f"{compared.a.n:,} on {compared.a.n_documents:,} documents"
            rows.append([
                Code(pair.a.model),
                pair.a.task.replace("_", " "),
                f"{compared.a.name} ({score(overall.mean_a)})",
                f"{compared.b.name} ({score(overall.mean_b)})",
                [Link(difference_words(overall), pair_file(pair))],
                "" if overall.p_value is None else f"{overall.p_value:.2g}",
                documents if compared.paired else f"{n}, different prompts",
            ])  # fmt: skip
        head = ["model", "task", "A (score)", "B (score)", "B minus A", "p", "answers"]
        title = f"{sources[source].name}: {family}"
        sections.append(Section(title, [DataTable(head, rows, right=())]))
    return sections


def pair_page(pair: Pair, source: Source) -> str:
    """A pair's page: the sentence, both sides, the difference over length, and each bin."""
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
        *source.traps,
        f"{source.citation}. Licence: {source.licence or 'none found'}.",
    ]
    known = Section("What to know about these answers", [Bullets(about)])
    title = f"{a.model}: {a.task.replace('_', ' ')}, {pair.family}"
    body = blocks_html(blocks) + difference_html(pair.comparison)
    body += sections_html([*others, known, *below])
    return html_page(title, in_unit(body, unit), [], None)
