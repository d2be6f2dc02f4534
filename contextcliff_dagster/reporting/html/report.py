"""The page of a length profile, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts.results import to_json
from contextcliff_dagster.reporting.html.attention import SCRIPT, attention_html
from contextcliff_dagster.reporting.html.escaping import text
from contextcliff_dagster.reporting.html.page import Interactive, html_page
from contextcliff_dagster.reporting.html.payload import Evidence, payload_of
from contextcliff_dagster.reporting.html.picture import chip, look, picture_html
from contextcliff_dagster.reporting.html.render import blocks_html, sections_html
from contextcliff_dagster.reporting.length_profile.questions import few_data_blocks
from contextcliff_dagster.reporting.sections import Page, as_folds
from contextcliff_dagster.reporting.wording.number_format import estimate, level, located, tokens
from contextcliff_dagster.reporting.wording.sentences import (
    VERDICT_PHRASE,
    labels,
    last_octave_phrase,
    score_name,
    sentence,
)
from contextcliff_dagster.reporting.wording.tolerance import tolerance_sentences

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


def head_html(results: Sequence[Cliffs]) -> str:
    """Cards of all models, and what the tolerance means in answers."""
    if not results:
        return "<p>No model has a result yet.</p>"
    cards = "".join(map(_card, range(len(results)), labels(results), results))
    names = labels(results)
    meanings = " ".join(tolerance_sentences(results, names))
    few = blocks_html(few_data_blocks(results, names))
    return f'<div class="cards">{cards}</div>\n<p>{text(meanings)}</p>\n{few}'


def _card(row: int, name: str, result: Cliffs) -> str:
    cap = result.safe_cap_tokens
    if cap is None:
        big = "No safe cap"
        why = sentence(result.safe_cap_reason) or "The analysis gives no reason."
    else:
        big = f"{tokens(cap)} tokens"
        why = (
            f"Safe cap: up to here, with {level(result.confidence)} confidence, the "
            f"{score_name(result)} is within {level(result.tolerance)} of its baseline."
        )
    base, cliff, documents = result.baseline, result.cliff, result.n_documents
    facts = [("Verdict", VERDICT_PHRASE[result.verdict]), ("Examples", tokens(result.n))]
    if documents is not None and documents != result.n:
        facts.append(("Documents", tokens(documents)))
    if lost := sum(to_json(result.missing).values()):
        facts.append(("Without an answer", tokens(lost)))
    if base.mean is not None:
        facts.append(("Baseline", estimate(base.mean, base.ci_low, base.ci_high)))
    if cap is not None and result.cap_prompt_tokens is not None:
        facts.append(("Cap as prompt tokens", tokens(result.cap_prompt_tokens)))
    if octave := last_octave_phrase(result):
        facts.append(("Just below the cap", octave.partition(" of ")[0]))
    rows = "".join(f"<div><dt>{text(key)}</dt><dd>{text(value)}</dd></div>" for key, value in facts)
    if cliff is not None:
        place = located(cliff.location_tokens, cliff.ci_low, cliff.ci_high)
        rows += f'<div class="wide"><dt>Midpoint of the drop</dt><dd>{place} tokens</dd></div>'
    doubt = f'<p class="why">{text(result.score_doubt)}</p>\n' if result.score_doubt else ""
    return (
        f'<article class="card {look(row).style}"><h2>{chip(row)} {text(name)}</h2>\n'
        f'{doubt}<p class="cap">{text(big)}</p>\n<p class="why">{text(why)}</p>\n'
        f"<dl>{rows}</dl></article>\n"
    )
