"""The page around a report: one file with its style, its scripts and its data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from contextcliff_dagster.reporting.html.escaping import script_json, text
from contextcliff_dagster.reporting.html.render import Pictures, fold_html
from contextcliff_dagster.reporting.sections import Fold

_ASSETS = Path(__file__).parent / "assets"
_STYLES = ("page.css", "chart.css")
_SCRIPTS = ("page.js",)
DRAWING = ("scales.js", "marks.js", "pointing.js")
"""Scripts that every interactive picture needs."""


class Interactive(NamedTuple):
    """What a reader changes: the page's data as JSON values, and files of ``assets``."""

    payload: Mapping[str, Any] | None
    scripts: tuple[str, ...] = (*DRAWING, "chart.js", "answers.js", "controls.js")
    style: str = ""


def html_page(
    title: str,
    head: str,
    folds: Sequence[Fold],
    interactive: Interactive | None = None,
    pictures: Pictures | None = None,
) -> str:
    """Return the page: ``head`` as it is, then each fold as a question that opens.

    ``title``: of the page, shown above the head. ``head``: HTML, made by `render` of anything that
    a user or a model wrote. ``interactive``: what is behind a picture or table of ``head``;
    without it the page carries no script for one. ``pictures``: PNG files that the folds show.

    Nothing but the page's own style and scripts is let in, by their hashes: whatever an answer
    says, a browser neither runs it nor fetches anything for it.
    """
    own = interactive or Interactive(None, ())
    style = _joined((*_STYLES, *filter(None, [own.style])))
    files = (*_SCRIPTS, *own.scripts)
    script = f'\n"use strict";\n(() => {{{_joined(files)}}})();\n'
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )
    data = ""
    if own.payload is not None:
        held = script_json(own.payload)
        data = f'<script type="application/json" id="data">{held}</script>\n'
    questions = "\n".join(fold_html(fold, pictures) for fold in folds)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<header class="bar"><p class="brand">ContextCliff</p>
<div id="theme" hidden></div></header>
<main>
<h1>{text(title)}</h1>
{head}
<section class="folds" aria-label="Details">
{questions}
</section>
</main>
{data}<script>{script}</script>
</body>
</html>
"""


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n" + "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in names)


@cache
def _hash(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"
