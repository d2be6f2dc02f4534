"""The page of a length profile, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.reporting.html.head import head_html
from contextcliff_dagster.reporting.html.page import html_page
from contextcliff_dagster.reporting.sections import Page, as_folds

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.reporting.html.render import Pictures


def profile_page(results: Sequence[Cliffs], page: Page, *, title: str, pictures: Pictures) -> str:
    """Return ``report.html``: cards, then what ``page`` has below its first section.

    ``pictures``: PNG files that its folds show.
    """
    folds = [*as_folds(page.head[1:]), *page.folds]
    return html_page(title, head_html(results), folds, None, pictures)
