"""A campaign against the pinned baseline as a page: what the test says, and both curves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
from contextcliff_dagster.store import Store, write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.length_profile.regression import Regression
    from contextcliff_dagster.reporting.sections import Block, Cell
    from contextcliff_dagster.studies import Study

_MOST_DRAWN = 3
"""Models whose curves are drawn, before and now; declined ones come first."""


def write_regression(regression: Regression, study: Study, store: Store) -> Path | None:
    """Write ``regression.html`` into the campaign's report; None where nothing was compared.

    One of an earlier comparison is removed then. A store that cannot be written has no page: the
    check itself needs none.
    """
    file = store.report_dir(study.name, regression.campaign) / "regression.html"
    if not regression.shrinks and not regression.unjudged:
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    from contextcliff_dagster.reporting.comparison import curves_html
    from contextcliff_dagster.reporting.html.render import blocks_html, html_page
    from contextcliff_dagster.reporting.sections import DataTable, Fold, Paragraph, Section

    rows: list[list[Cell]] = [
        [
            model,
            "declined" if one.shrunk else "not worse beyond noise",
            f"{one.before:.2f}",
            f"{one.now:.2f}",
            one.n,
            f"{one.from_tokens:,} to {one.to_tokens:,}",
            f"{one.lost} of {one.right}",
            one.gained,
            f"{one.p_value:.2g} ({one.alpha:.2g})",
        ]
        for model, one in regression.shrinks.items()
    ]
    columns = ["model", "against the baseline", "mean before", "mean now", "examples"]
    columns += ["clearest losses at, tokens", "right answers lost there", "gained there"]
    table = DataTable([*columns, "p (limit)"], rows, right=(2, 3, 4, 7))
    note = (
        "An answer may change without anything being wrong (flip_rate of the study); a decline is "
        "what that does not explain. The limit keeps the false alarms of a year within "
        "yearly_error, over its runs and models."
    )
    unjudged = [f"{model} is not judged: {why}." for model, why in regression.unjudged.items()]
    drawn = sorted(regression.shrinks, key=lambda model: not regression.shrinks[model].shrunk)
    campaigns = [name for name in (regression.baseline, regression.campaign) if name]
    known: dict[tuple[str, str], Cliffs] = {}
    for campaign in campaigns:
        with suppress(StoreError):  # of another sample or request, or gone: no curve
            known |= {(one.model, campaign): one for one in read_cliffs(study, store, campaign)}
    pairs = [(model, campaign) for model in drawn[:_MOST_DRAWN] for campaign in campaigns]
    names = [f"{model} ({campaign})" for model, campaign in pairs]
    curves, picture = curves_html([known.get(pair) for pair in pairs], names)
    title = f"{study.name}: {regression.campaign} against {regression.baseline}"
    head = blocks_html([Paragraph(regression.sentence)])
    blocks: list[Block] = [table, *map(Paragraph, unjudged), Paragraph(note)]
    fold = Fold("How sure is it?", [Section("The test", blocks, 3)])
    try:
        write_atomic(file, html_page(title, head + curves, [fold], picture).encode())
    except StoreError:
        return None
    return file
