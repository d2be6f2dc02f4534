"""Log a campaign's report to the study's tracker, reusing the existing run of each model."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.redaction import redact, secrets_of, without_secrets
from contextcliff_dagster.reporting.report_files import ReportFiles, for_readers
from contextcliff_dagster.store import PACKAGE, Store, slug, write_json
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import described, leave_needed

if TYPE_CHECKING:
    from contextcliff_dagster.experiments.common.study_run import StudyRun


_PARAMETERS = ("sampling", "bins", "prompt", "scoring", "analysis", "calls")
"""Sections of the study to log; none of them contains a server, a key or a price."""
_TO_OVERVIEW = re.compile(
    r'<p><a href="\.\./\.\./report\.html">[^<]*</a></p>\n?|^\[[^\n]*\]\(\.\./\.\./report\.md\)\n\n',
    re.MULTILINE,
)
"""The paragraph that `reporting.report_files` adds to a model's page if there are several."""


def run_contents(study: Study, result: Cliffs, files: ReportFiles) -> dict[str, Any]:
    """Return a run's JSON contents, without secrets or local paths, equal for equal reports.

    ``params``: text by name; ``metrics``: number by name, None if not supported; ``curve`` and
    ``bins``: rows of tokens and score; ``tags``; ``files``: paths, without the model's
    ``cliffs.json``, because ``result`` contains it.
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
    # The exact spelling identifies the run; tags and name are for display.
    contents["model"] = result.model
    own = files.md.parent / "models" / slug(result.model)  # if several models have separate pages
    folder = own if own.is_dir() else files.md.parent
    contents["of_many"] = folder is own
    contents["files"] = [str(folder / path.name) for path in files if path is not None]
    contents["picture"] = str(folder / files.png.name) if files.png else None
    return contents


def with_lone_pages(contents: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return ``contents`` with copies of its pages in ``folder``, without links to the page of all
    models: a run holds the pages of one model."""
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
    """Return the SHA-256 (hex) of the contents to log, including the bytes of files."""
    data = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in contents["files"]]
    text = json.dumps([contents, data], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


PYTHON = "CONTEXTCLIFF_TRACKER_PYTHON"
"""Environment variable: Python of an environment with the tracker, if ours lacks it."""
NAMES = {"mlflow": "MLflow", "wandb": "Weights & Biases"}
_LIMIT_S = 300.0
_LONGEST = 500
"""Maximum length of a tracker's message, because a server may answer with a whole page."""
_QUIET = {
    # Seven attempts with doubling pauses take four minutes if the server is unreachable.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # a folder is a place that the user may name
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
}


def track_report(
    run: StudyRun, results: list[Cliffs], files: ReportFiles, warn: Callable[[str], None]
) -> None:
    """Log ``results`` and ``files`` to the study's tracker, if it has one.

    Skips a model whose run already has the same contents. Failures are reported to ``warn`` and
    stored for `tracked_lines`; nothing is raised, and the next report tries again.
    """
    if (track := run.study.track) is None:
        return
    state = _read(run.store, run.study, run.campaign)
    try:
        failed = _log(run, results, files, state)
    except Exception as error:  # any failure: the report exists, and measuring continues
        failed = redact(str(error) or type(error).__name__, secrets_of(os.environ))
    state["failed"] = failed
    if failed is not None:
        warn(f"The report was not logged to {NAMES[track.kind]}: {failed}")
    with suppress(ContextCliffError):
        write_json(_file(run.store, run.study, run.campaign), state)


def tracked_lines(store: Store, study: Study, campaign: str) -> list[str]:
    """Return sentences for the terminal: where the report was logged, or why not."""
    if study.track is None:
        return []
    state, name = _read(store, study, campaign), NAMES[study.track.kind]
    if why := state.get("failed"):
        return [f"Not logged to {name}: {why} `contextcliff report {study.name}` tries again."]
    urls = [str(run.get("url") or run["id"]) for run in state["runs"].values()]
    return [f"{name}: {', '.join(urls)}"] if urls else []


def _log(
    run: StudyRun, results: list[Cliffs], files: ReportFiles, state: dict[str, Any]
) -> str | None:
    """Log the runs and update ``state``; return why something was not logged, or None."""
    study, track = run.study, run.study.track
    assert track is not None
    if needed := leave_needed(study, "track"):
        return (
            f"{described(study, needed)}; if you want that, add --trust-study, or move its file "
            "into CONTEXTCLIFF_STUDIES."
        )
    target = _target(run)
    if state["target"] != target:  # its runs are in another place
        state |= {"target": target, "runs": {}}
    known, waiting = state["runs"], []
    for result in results:
        contents = run_contents(study, result, files)
        made, curve = digest(contents), digest({"files": [], "curve": contents["curve"]})
        before = known.get(result.model, {})
        if before.get("digest") == made:
            continue
        # Points of a curve cannot be removed from a run, so a new curve gets a new name.
        version = before.get("curve_version", 0) + (before.get("curve") != curve)
        new = {"digest": made, "curve": curve, "curve_version": version}
        log_curve = before.get("curve") != curve
        waiting.append((contents | {"curve_version": version, "log_curve": log_curve}, new))
    if not waiting:
        return None
    for contents, _ in waiting:
        contents["id"] = known.get(contents["model"], {}).get("id")
    with TemporaryDirectory() as folder:
        models = [with_lone_pages(model, Path(folder)) for model, _ in waiting]
        request = {**target, "campaign": run.campaign, "models": models}
        done, why = _process(track.kind, request)
    for contents, new in waiting:
        if logged := done.get(contents["model"]):
            complete = new if logged.pop("complete", False) else {}
            known[contents["model"]] = {**known.get(contents["model"], {}), **logged, **complete}
    return why


def _target(run: StudyRun) -> dict[str, Any]:
    """Return the full location of the runs: if a setting or variable changes it, new runs begin."""
    study, store, track = run.study, run.store, run.study.track
    assert track is not None
    if track.kind == "wandb":
        folder = store.root / "wandb"
        if not (chosen := os.environ.get("WANDB_DIR")):
            folder.mkdir(parents=True, exist_ok=True)
        return {
            "project": track.project or os.environ.get("WANDB_PROJECT") or "contextcliff",
            "entity": track.entity or os.environ.get("WANDB_ENTITY"),
            "folder": chosen or str(folder),
        }
    written, artifacts = track.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"), None
    if written is None:
        folder = store.root / "mlflow"
        written, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
    elif "://" not in written and written != "databricks":
        written = str(study.folder / Path(written).expanduser())
    experiment = track.experiment or f"contextcliff/{study.name}"
    return {"tracking_uri": written, "artifacts": artifacts, "experiment": experiment}


def _process(kind: str, request: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the script's reports on each model, and why it ended early, or None."""
    script = PACKAGE / "experiments" / "tracking" / "tracker_process.py"
    python = os.environ.get(PYTHON) or sys.executable
    environment = {**_QUIET, **os.environ}
    if (uri := request.get("tracking_uri") or "").startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            [python, "-P", str(script), kind], stdin=pipe, stdout=pipe, stderr=pipe, text=True,
            encoding="utf-8", errors="replace", env=environment, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return {}, f"{python} cannot be run ({error.strerror}); correct {PYTHON}."
    why: str | None = None
    with process:
        try:
            output, errors = process.communicate(json.dumps(request), timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            _end(process)
            output, errors = process.communicate()
            why = f"it took longer than {_LIMIT_S:g} s"
        finally:
            _end(process)
    if process.returncode and why is None:
        lines = errors.strip().splitlines() or [f"it ended with {process.returncode}"]
        why = lines[-1][:_LONGEST]
    hidden = secrets_of(os.environ)
    reports: dict[str, dict[str, Any]] = {}
    for line in output.splitlines():
        with suppress(ValueError, TypeError, KeyError):  # other output of the tracker
            report = json.loads(line)
            reports.setdefault(report.pop("model"), {}).update(without_secrets(report, hidden))
    # The end of a sentence, as everywhere else.
    return reports, None if why is None else f"{redact(why, hidden).rstrip('.')}."


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and its children: a tracker's own processes outlive the script."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _file(store: Store, study: Study, campaign: str) -> Path:
    return store.study_dir(study.name) / "tracking" / f"{slug(campaign)}.json"


def _read(store: Store, study: Study, campaign: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"target": None, "runs": {}, "failed": None}
    with suppress(OSError, ValueError, TypeError):  # missing or damaged
        kept = json.loads(_file(store, study, campaign).read_bytes())
        if isinstance(kept["runs"], dict):
            return {**empty, **kept}
    return empty
