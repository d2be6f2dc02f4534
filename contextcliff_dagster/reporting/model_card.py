"""A model's safe context for its model card: a block of Markdown, JSON-LD, and a badge.

Every number comes with its task, date and confidence. The JSON-LD is a schema.org ``Observation``;
no Hugging Face ``model-index`` is written, because it has no field for an interval or a date.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.reporting import wording
from contextcliff_dagster.reporting.markdown import as_page, one_line
from contextcliff_dagster.reporting.sections import (
    Block,
    Code,
    DataTable,
    Figure,
    Paragraph,
    Section,
)

BADGE = "badge.svg"
_LABEL, _HEIGHT, _SIZE, _PAD = "safe context", 20, 11, 8
_DARK, _GREEN, _AMBER = "#24292f", "#1a7f37", "#7d4e00"
_LONGEST_TASK = 40
_WHY_NONE = {Verdict.INSUFFICIENT_DATA: "insufficient data", Verdict.FLOOR: "score at the floor"}


def measured_on(cliffs: Cliffs) -> str:
    """Return the UTC date of the last call, or of the analysis if calls have no times."""
    ended = cliffs.provenance["times"].get("measured_to") or cliffs.created_at
    return datetime.fromisoformat(ended).astimezone(UTC).date().isoformat()


def headline(cliffs: Cliffs) -> str:
    """Return ``safe to 51k tokens (task, date)``, rounding down to thousands."""
    cap = wording.deciding_cap(cliffs)
    task = one_line(cliffs.task or cliffs.study or "task unknown")
    if len(task) > _LONGEST_TASK:
        task = f"{task[: _LONGEST_TASK - 1].rstrip()}…"
    if cap is None:
        words = f"no cap: {_WHY_NONE.get(cliffs.verdict, 'not supported by the data')}"
    else:
        words = f"safe to {f'{cap // 1_000}k' if cap >= 10_000 else wording.tokens(cap)} tokens"
    return f"{words} ({task}, {measured_on(cliffs)})"


def claim(cliffs: Cliffs) -> str:
    """Return one sentence on what the cap means, or why there is no cap."""
    cap = wording.deciding_cap(cliffs)
    if cap is None:
        return f"No safe cap. {wording.sentence(cliffs.safe_cap_reason)}"
    return (
        f"Documents of up to {wording.tokens(cap)} tokens are safe: the score stays within "
        f"{wording.level(cliffs.tolerance)} of its baseline "
        f"({wording.level(cliffs.confidence)} confidence)."
    )


def card_markdown(cliffs: Cliffs) -> str:
    """Return the Markdown block: badge, claim, evidence, and folded JSON-LD."""
    reach, drop = wording.measured_range(cliffs), cliffs.cliff
    span = f", {wording.tokens(reach[0])} to {wording.tokens(reach[1])} tokens" if reach else ""
    verdict = wording.VERDICT_PHRASE[cliffs.verdict]
    if drop is not None:
        at = wording.located(drop.location_tokens, drop.ci_low, drop.ci_high)
        verdict += (
            f", midpoint of the drop at {at} tokens ({wording.level(cliffs.confidence)} interval)"
        )
    score = f"{wording.score_name(cliffs)}, baseline {wording.baseline_phrase(cliffs)}"
    rows: list[tuple[str, Any]] = [
        ("Model", Code(cliffs.model)),
        ("Task", cliffs.task or "unknown"),
        ("Verdict", verdict),
        ("Score", score),
        ("Measured", f"{measured_on(cliffs)}, {wording.amount(cliffs)}{span}"),
        ("Separated from other causes than length", cliffs.confounds.identified.replace("_", " ")),
        ("Study", f"{cliffs.study or 'none'}, campaign {cliffs.campaign or 'none'}"),
        ("Lengths counted by", cliffs.tokenizer or "unknown"),
        ("Serving identity", Code(cliffs.identity) if cliffs.identity else "unknown"),
    ]
    if (
        wording.deciding_cap(cliffs) == cliffs.safe_cap_tokens
        and cliffs.cap_prompt_tokens is not None
    ):
        prompt = f"{wording.tokens(cliffs.cap_prompt_tokens)} tokens of this model"
        rows.insert(2, ("The cap as a whole prompt", prompt))
    subject = "The cap" if wording.deciding_cap(cliffs) is not None else "This"
    holds = f"{subject} holds for this task and this serving configuration only."
    blocks: list[Block] = [
        Figure(Path(BADGE), headline(cliffs)),
        Paragraph(claim(cliffs)),
        DataTable(("", ""), rows),
        Paragraph(" ".join(filter(None, (holds, wording.copies_sentence(cliffs))))),
    ]
    page = as_page([Section("Safe context", blocks, level=2)]).rstrip()
    machine = json_ld_text(cliffs)
    folded = f"<details><summary>JSON-LD</summary>\n\n```json\n{machine}\n```\n\n</details>"
    return f"{page}\n\n{folded}\n"


def card_json_ld(cliffs: Cliffs) -> dict[str, Any]:
    """Return an ``Observation`` of the cap and, if there is a drop, one of its midpoint."""
    model = {"@type": "SoftwareApplication", "@id": "#model", "name": cliffs.model}
    if cliffs.identity:
        model["identifier"] = cliffs.identity
    cap, drop, day = wording.deciding_cap(cliffs), cliffs.cliff, measured_on(cliffs)
    made_by = cliffs.provenance["versions"].get("contextcliff-dagster")
    facts = {
        "task": cliffs.task, "verdict": cliffs.verdict.value, "confidence": cliffs.confidence,
        "tolerance": cliffs.tolerance, "examples": cliffs.n, "documents": cliffs.n_documents,
        "score": cliffs.score.name, "tokenizer": cliffs.tokenizer, "study": cliffs.study,
        "campaign": cliffs.campaign, "contextcliff-dagster": made_by,
    }  # fmt: skip
    shared = {
        "@type": "Observation",
        "observationAbout": {"@id": "#model"},
        "observationDate": day,
        "unitText": "tokens",
        "measurementTechnique": "Natural Length Distribution Analysis",
    }
    observed = [
        {
            **shared,
            "name": "Safe context cap",
            "description": claim(cliffs),
            **({} if cap is None else {"value": cap}),
            "additionalProperty": [
                {"@type": "PropertyValue", "name": name, "value": value}
                for name, value in facts.items()
                if value is not None
            ],
        }
    ]
    if drop is not None:
        middle = {"value": drop.location_tokens, "minValue": drop.ci_low, "maxValue": drop.ci_high}
        about = f"Task {cliffs.task or 'unknown'}; {wording.level(cliffs.confidence)} interval."
        name = "Midpoint of the drop"
        observed.append({**shared, "name": name, "description": about, **middle})
    return {"@context": "https://schema.org", "@graph": [model, *observed]}


def json_ld_text(cliffs: Cliffs) -> str:
    """Return the JSON-LD as text that is safe in HTML: ``<``, ``>`` and ``&`` are escaped."""
    text = json.dumps(card_json_ld(cliffs), indent=1, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def badge_svg(cliffs: Cliffs) -> str:
    """Return the headline as a one-line SVG badge; its title has the exact cap."""
    words = headline(cliffs)
    colour = _AMBER if wording.deciding_cap(cliffs) is None else _GREEN
    title = escape(one_line(f"{cliffs.model}: {words}. {claim(cliffs)}"))
    left, right = (round(text_width(text)) for text in (_LABEL, words))
    at, wide = left + 2 * _PAD, left + right + 4 * _PAD
    style = f'font-family="Verdana,DejaVu Sans,sans-serif" font-size="{_SIZE}" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{_HEIGHT}" '
        f'viewBox="0 0 {wide} {_HEIGHT}" role="img" aria-labelledby="title">'
        f'<title id="title">{title}</title>'
        f'<rect width="{at}" height="{_HEIGHT}" fill="{_DARK}"/>'
        f'<rect x="{at}" width="{wide - at}" height="{_HEIGHT}" fill="{colour}"/>'
        f"<g {style}>"
        f'<text x="{_PAD}" y="14" textLength="{left}">{_LABEL}</text>'
        f'<text x="{at + _PAD}" y="14" textLength="{right}">{escape(words)}</text>'
        "</g></svg>\n"
    )


def text_width(text: str) -> float:
    """Return the width of ``text`` in pixels at the badge's size; wide characters take one em.

    The badge's ``textLength`` forces this width whatever the reader's font.
    """
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    narrow = "".join(c for c in text if unicodedata.east_asian_width(c) not in "WF")
    return float(_font().getlength(narrow)) / 10 + _SIZE * wide


@cache
def _font() -> Any:
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", 10 * _SIZE)
