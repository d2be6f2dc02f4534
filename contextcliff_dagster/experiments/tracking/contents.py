"""What one run of a tracker holds: parameters, figures, the curve, verdict, files."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.reporting.local_paths import for_readers
from contextcliff_dagster.store import slug

if TYPE_CHECKING:
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.studies import Study

_PARAMETERS = ("sampling", "bins", "prompt", "scoring", "analysis", "calls")
"""Sections of the study: none of them names a server, a key or a price."""
_TO_OVERVIEW = re.compile(
    r'<p><a href="\.\./\.\./report\.html">[^<]*</a></p>\n?|^\[[^\n]*\]\(\.\./\.\./report\.md\)\n\n',
    re.MULTILINE,
)
"""The paragraph that `reporting.report_files` puts above the page of one of many models."""


def run_contents(study: Study, result: Cliffs, files: ReportFiles) -> dict[str, Any]:
    """JSON-ready, without secrets and paths of this machine, and the same for the same report.

    ``params``: text by name; ``metrics``: number by name, None where it is not supported; ``curve``
    and ``bins``: rows of tokens and score; ``tags``; ``files``: paths, the model's ``cliffs.json``
    not among them, as ``result`` holds all of it.
    """
    cliff = result.cliff
    params: dict[str, Any] = {
        name: getattr(result, name)
        for name in ("study", "campaign", "model", "task", "tokenizer", "identity", "window_tokens")
    }
    for section in _PARAMETERS:
        for key, value in getattr(study, section):
            if value is not None:
                params[f"{section}.{key}"] = value
    metrics: dict[str, float | None] = {
        "safe_cap_tokens": result.safe_cap_tokens,
        "cap_prompt_tokens": result.cap_prompt_tokens,
        "baseline_mean": result.baseline.mean,
        "drop": cliff.drop if cliff else None,
        "drop_tokens": cliff.location_tokens if cliff else None,
        "n": result.n,
        "n_documents": result.n_documents,
        "missing_share": result.missing_share,
        **{f"safe_cap_tokens_at_{round(100 * row.tolerance)}": row.safe_cap_tokens
           for row in result.caps_by_tolerance},
    }  # fmt: skip
    tags = {
        "contextcliff.study": result.study,
        "contextcliff.campaign": result.campaign,
        "contextcliff.model": result.model,
        "contextcliff.verdict": str(result.verdict),
        "contextcliff.safe_cap_reason": result.safe_cap_reason,
        "contextcliff.method_version": result.method_version or "1",
        "contextcliff.scorer_version": result.scorer_version or "1",
    }
    contents: dict[str, Any] = for_readers()({
        "model": result.model,
        "name": f"{result.model} {result.campaign}",
        "params": {name: _text(value) for name, value in params.items()},
        "metrics": {name: _number(value) for name, value in metrics.items()},
        "curve": [[p.tokens, p.mean, p.ci_low, p.ci_high] for p in result.curve],
        "bins": [
            [b.median_tokens, b.mean] for b in result.bins
            if b.median_tokens is not None and b.mean is not None
        ],
        "tags": {name: value for name, value in tags.items() if value is not None},
    })  # fmt: skip
    # Its own spelling finds the run again; what is shown is in tags and name.
    contents["model"] = result.model
    own = files.md.parent / "models" / slug(result.model)  # where many models have a page each
    folder = own if own.is_dir() else files.md.parent
    contents["of_many"] = folder is own
    contents["files"] = [str(folder / path.name) for path in files if path is not None]
    contents["picture"] = str(folder / files.png.name) if files.png else None
    return contents


def with_lone_pages(contents: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``contents`` with copies of its pages, in ``folder``, that lead to no page over all models:
    a run holds the pages of one model."""
    if not contents["of_many"]:
        return contents
    copies = []
    for name in contents["files"]:
        file = Path(name)
        if file.suffix in (".html", ".md"):
            text = file.read_text(encoding="utf-8")
            file = folder / slug(contents["model"]) / file.name
            file.parent.mkdir(exist_ok=True)
            file.write_text(_TO_OVERVIEW.sub("", text, count=1), encoding="utf-8")
        copies.append(str(file))
    return {**contents, "files": copies}


def digest(contents: dict[str, Any]) -> str:
    """SHA-256 (hex) of what would be logged, the files by what they hold."""
    held = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in contents["files"]]
    text = json.dumps([contents, held], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
