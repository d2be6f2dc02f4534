"""The page of a length profile, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.html.attention import SCRIPT, attention_html
from contextcliff_dagster.reporting.html.head import head_html
from contextcliff_dagster.reporting.html.page import Interactive, html_page
from contextcliff_dagster.reporting.html.payload import Evidence, payload_of
from contextcliff_dagster.reporting.html.picture import picture_html
from contextcliff_dagster.reporting.html.render import sections_html
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.reporting.html.render import Pictures


def profile_page(
    results: Sequence[Cliffs],
    page: Page,
    evidence: Evidence,
    *,
    title: str,
    pictures: Pictures,
    redact: Callable[[str], str],
    above: str = "",
) -> str:
    """Return ``report.html``: cards, the picture, then what ``page`` has below its first section.

    ``pictures``: PNG files that its folds show. ``redact``: put on questions and answers.
    ``above``: HTML in front of the cards.
    """
    answer = sections_html([section for section in page.head[1:] if section.first])
    folds = [*as_folds([s for s in page.head[1:] if not s.first]), *page.folds]
    if not results:
        return html_page(title, head_html(results), folds, None, pictures)
    attention = attention_html(results)
    head = above + head_html(results) + picture_html(results) + answer + attention
    picture = Interactive(payload_of(results, evidence, redact))
    if attention:
        picture = picture._replace(scripts=(*picture.scripts, SCRIPT))
    return html_page(title, head, folds, picture, pictures)
