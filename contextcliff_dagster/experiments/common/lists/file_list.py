"""The list of a corpus's files next to the frozen sample, with what only their lengths decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextcliff_dagster.inference.execution.cost_estimate import SCAFFOLD_CHARS_PER_TOKEN
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study

TOO_LONG, TOO_SHORT = "too_long", "too_short"


def file_list(study: Study, store: Store, account: Mapping[str, Any]) -> Path | None:
    """Where the list lies; None where this corpus keeps none."""
    name = Path(str(account.get("list") or "")).name  # of an archive: it must not lead elsewhere
    path = store.manifest_dir(study.name) / name
    return path if name and path.is_file() else None


def keep_file_list(study: Study, store: Store, corpus: Path, length_map: Path) -> None:
    """Write the list again with tokens; used files may turn out too long or too short by them.

    Too long is a document that, as the study counts, leaves no room for prompt and answer in the
    smallest window of its models. It stays in the sample: a call that does not fit by its model's
    own count is counted as context_overflow and not sent. Does nothing without a list.

    Raises:
        StoreError: the length map was not built, or the list cannot be written.
    """
    from contextcliff_dagster.corpora.materialize import read_rows, read_summary, write_rows
    from contextcliff_dagster.sampling.length_map import read_length_map

    name = read_summary(corpus).account.get("list")
    if not name:
        return
    lengths = read_length_map(length_map, 0)
    tokens = dict(
        zip(lengths["document_id"].to_pylist(), lengths["length_tokens"].to_pylist(), strict=True)
    )
    windows = {name: w for name in study.models if (w := get_model(name).window_tokens)}
    model = min(windows, key=lambda name: windows[name], default="")
    recipe = study.recipe()
    scaffold = sum(map(len, recipe.render("", "", 0).contents()))
    overhead = math.ceil(scaffold / SCAFFOLD_CHARS_PER_TOKEN) + recipe.max_output_tokens
    least = study.sampling.min_tokens
    rows: list[dict[str, Any]] = []
    for row in read_rows(corpus / str(name)):
        length = tokens.get(row["document_id"]) if row["fate"] == "used" else None
        fate, reason = row["fate"], row["reason"]
        if length is not None and model and length + overhead > windows[model]:
            fate = TOO_LONG
            reason = (
                f"does not fit the window of {model} ({windows[model]:,} tokens, about "
                f"{overhead:,} of them for prompt and answer) by the study's count"
            )
        elif length is not None and length < least:
            fate, reason = TOO_SHORT, f"is shorter than sampling.min_tokens ({least:,})"
        rows.append({**row, "fate": fate, "reason": reason, "tokens": length})
    write_rows(store.manifest_dir(study.name) / str(name), rows)


def notes_on_files(study: Study, store: Store, account: Mapping[str, Any]) -> list[str]:
    """Sentences for the report on what became of the files; none without a list."""
    from contextcliff_dagster.corpora.materialize import read_rows

    if not account.get("list"):
        return []
    parts = [str(account.get("summary", ""))]
    path = file_list(study, store, account)
    if path is None:  # an imported study has the sample, not the list
        return parts
    fates = [row["fate"] for row in read_rows(path)]
    if long := fates.count(TOO_LONG):
        parts.append(
            f"Of the files used, {long:,} do not fit the smallest window by the study's count."
        )
    parts.append(f"Outcome of each file: {path.parent.name}/{path.name} in the study's folder.")
    return parts
