"""Tokens of what a request puts around the document, in the study's own tokenizer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from contextcliff_dagster.contracts import ContextCliffError
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    import pandas as pd

    from contextcliff_dagster.sampling.manifest import Manifest


def with_prompt_overhead(study: Study, manifest: Manifest, records: pd.DataFrame) -> pd.DataFrame:
    """``records`` with a column ``scaffold_tokens``, counted as the lengths are.

    Without it where no server told its prompt tokens, or the tokenizer is not to be had: a report
    is made without a server, and without the file it once was.
    """
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    if study.tokenizer.startswith("server:") or not records["prompt_tokens"].notna().any():
        return records
    try:
        tokenizer = open_any_tokenizer(study.tokenizer_name)
    except ContextCliffError:
        return records
    recipe = study.recipe()
    columns = (manifest.examples[name].to_pylist() for name in ("example_id", "question"))
    questions = dict(zip(*columns, strict=True))
    asked = list(zip(records["example_id"], records["replicate"], strict=True))
    counts: dict[tuple[str, int], float] = {}
    for example, replicate in dict.fromkeys(asked):
        if example in questions and 0 <= replicate < recipe.replicates:
            texts = recipe.render("", questions[example], int(replicate)).contents()
            counts[example, replicate] = sum(tokenizer.count_many([t for t in texts if t]))
    return records.assign(scaffold_tokens=[counts.get(one, math.nan) for one in asked])
