"""Write the files of a run, under Context-Tester's names and with its keys."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.continuation.compat.runs import ContextResult, Run
from contextcliff_dagster.extensions.continuation.compat.statistics import trend_analysis
from contextcliff_dagster.store import write_atomic

_SETTINGS = ("max_tokens", "temperature", "top_k", "top_p")
_AUTHOR_SHOWN = (
    *("cloze_score", "vocabulary_diversity", "adjacent_coherence", "bigram_repetition_rate"),
)


def start_folder(results: Path, run: Run) -> Path:
    """Return the new folder of ``run`` in ``results``; the first file that is written makes it.

    Raises:
        StudyError: there is one already; nothing of it is changed.
    """
    folder = results / run.folder_name
    if folder.exists():
        raise StudyError(
            f"{folder} exists; give this run another --model-id, or delete the folder."
        )
    return folder


def write_context(folder: Path, run: Run, context: ContextResult, at: str) -> None:
    """Write `metadata.json` and `context_N_results.json` of a size that is done.

    Args:
        folder: of `start_folder`; made where it is not there.
        run: its metadata, with what is known so far.
        context: the size that is done.
        at: the time as ISO 8601.
    """
    _write(folder / "metadata.json", _metadata(run))
    content = {
        "context_length": context.context_tokens,
        "context_info": context.info,
        "generation_params": run.metadata.get("generation_params", {}),
        "num_rounds": len(context.rounds),
        "individual_rounds": list(context.rounds),
        "averaged_stats": context.average,
        "timestamp": at,
    }
    _write(folder / f"context_{context.context_tokens}_results.json", content)


def write_run(folder: Path, run: Run, at: str) -> list[Path]:
    """Write all files of ``run`` but the picture, and return the paths of those for reading."""
    for context in run.contexts.values():
        write_context(folder, run, context, at)
    return write_analysis(folder, run, at)


def write_analysis(folder: Path, run: Run, at: str) -> list[Path]:
    """Write what follows from the averages of ``run``, and return the paths.

    They are `degradation_analysis.json`, the CSV file of averages and the generated texts, if any.
    """
    rows = [{**average, "context_length": size} for size, average in run.averages.items()]
    analysis = folder / "degradation_analysis.json"
    found = trend_analysis(run.averages)
    _write(
        analysis,
        {"metadata": _metadata(run), "results": rows, **found, "analysis_timestamp": at},
    )
    table = folder / f"{run.file_stem}.csv"
    write_atomic(table, averages_csv(run).encode())
    if not run.rounds:
        return [analysis, table]
    texts = folder / f"{run.file_stem}_generations.txt"
    write_atomic(texts, generations_text(run).encode())
    return [analysis, table, texts]


def averages_csv(run: Run) -> str:
    """A row for each context size: model, settings, averages, size."""
    settings = run.metadata.get("generation_params", {})
    head = {
        "model_name": run.metadata.get("model_name"),
        "text_name": run.metadata.get("source_text_name"),
        "model_id": run.metadata.get("model_id"),
        **{key: settings.get(key) for key in _SETTINGS},
    }
    rows = [{**head, **average, "context_length": s} for s, average in run.averages.items()]
    columns = list(dict.fromkeys(key for row in rows for key in row if key != "context_length"))
    out = io.StringIO()
    writer = csv.DictWriter(out, [*columns, "context_length"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def generations_text(run: Run) -> str:
    """What the author wrote and what was generated, one after another, for reading."""
    pieces = [f"Model: {run.name}\nText: {run.metadata.get('source_text_name', 'unknown')}\n"]
    author = next((c.info.get("ground_truth_text") for c in run.contexts.values() if c.info), None)
    if author:
        shown = (f"{key}: {run.author[key]}" for key in _AUTHOR_SHOWN if key in run.author)
        pieces.append(_block("The author's text", "\n".join([*shown, "", str(author)])))
    pieces += [
        _block(f"Context {size:,}, round {one.get('round_number', place)}", text)
        for size, rounds in run.rounds.items()
        for place, one in enumerate(rounds, 1)
        if (text := str(one.get("continuation_text", "")))
    ]
    return "\n".join(pieces)


def _metadata(run: Run) -> dict[str, Any]:
    lengths = run.context_lengths or tuple(sorted(run.contexts))
    author = {"ground_truth_analysis": run.author} if run.author else {}
    return {"experiment_metadata": run.metadata, "context_lengths": list(lengths), **author}


def _block(title: str, text: str) -> str:
    return f"{'=' * 80}\n{title}\n{'=' * 80}\n{text}\n"


def _write(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False, default=dict)
    write_atomic(path, text.encode())
