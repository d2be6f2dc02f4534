"""A study made on the spot of the experiment utilization, from the options of its command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from contextcliff_dagster.cli.measuring.study_of_options import digest, first_error, given_keys
from contextcliff_dagster.cli.options import Finite, count_option, gathered_as, together
from contextcliff_dagster.contracts import StudyError

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

_OUTPUT_TOKENS = 64
_NAMES = {"benchmarks": "benchmark", "scales": "scale"}
"""Key of the section -> option, where that has another name."""
_LISTS = (
    *("benchmarks", "formats", "scales", "evidence", "verbosity", "order", "corruption"),
    *("thought", "question_place"),
)
_KEYS = (*_LISTS, "seeds", "questions", "match", "margin", "tokenizer", "factorial")

_OPTIONS = together(
    click.option(
        "--benchmark",
        "benchmarks",
        metavar="NAMES",
        help="warehouse (or ledger), constraints (or constraint), network; comma-separated "
        "(default: all).",
    ),
    click.option(
        "--scale",
        "scales",
        metavar="SCALES",
        help="Tokens of the JSON lines: 8k, or 1k,4k,16k, or 1k-64k in doublings (default: 1k-8k).",
    ),
    click.option(
        "--formats",
        metavar="NAMES",
        help="jsonl (or structured), prose, csv, markdown (default: jsonl,prose).",
    ),
    count_option("--seeds", 1, 1000, "Documents of each benchmark and scale (default: 10)."),
    count_option("--questions", 1, 64, "Questions on each document (default: 4)."),
    click.option(
        "--evidence",
        metavar="VALUES",
        help="growing (default) or fixed: whether more records matter in longer documents.",
    ),
    click.option(
        "--match",
        type=click.Choice(["content", "tokens"]),
        help="Formats of the same records (default), or of the same tokens.",
    ),
    click.option("--order", metavar="VALUES", help="chronological (default), shuffled."),
    click.option("--verbosity", metavar="VALUES", help="standard (default), terse, descriptive."),
    click.option(
        "--corruption",
        metavar="SHARES",
        help="Share of changed records, e.g. 0,5%; 5%:recomputed works the answers out again.",
    ),
    click.option("--thought", metavar="VALUES", help="off (default), on: reasons before answers."),
    click.option("--question-place", metavar="VALUES", help="after (default), before."),
    click.option(
        "--margin",
        type=Finite(0, 1, min_open=True, max_open=True),
        metavar="M",
        help="Difference of accuracy that matters (default: 0.1).",
    ),
    click.option(
        "--tokenizer",
        metavar="NAME",
        help="Counts lengths (default: the first model's, else tiktoken:o200k_base).",
    ),
    click.option(
        "--factorial",
        is_flag=True,
        default=None,
        help="Every combination of the values above, not one change at a time.",
    ),
)


utilization_options = gathered_as("keys", given_keys, _OPTIONS, _KEYS)
"""Gives a command the keys of the section as options, those that are given as ``keys``."""


def made_study(keys: Mapping[str, Any], models: tuple[str, ...]) -> Study:
    """Return the study that the options describe; options like these get a name of their own.

    Raises:
        StudyError: no model is named, a model is unknown, or an option has no such value.
    """
    from contextcliff_dagster.inference.models.models_file import get_model, load_models
    from contextcliff_dagster.studies import Study

    if not models:
        raise StudyError(
            "`contextcliff utilization` needs --model: name the model to measure "
            "(`contextcliff models`)."
        )
    known = load_models()
    entries = [get_model(name, known) for name in models]
    section = {
        key: _levels(key, value) if key in _LISTS else value
        for key, value in keys.items()
        if key != "tokenizer"
    }
    tokenizer = keys.get("tokenizer") or entries[0].tokenizer or ""
    study: dict[str, Any] = {
        "name": "utilization",
        "description": "Utilization: the same records in several formats.",
        "tokenizer": tokenizer,
        "models": list(dict.fromkeys(models)),
        "prompt": {"max_output_tokens": _OUTPUT_TOKENS},
        "utilization": section,
    }
    try:
        made = Study.model_validate(study)
    except ValidationError as error:
        raise _sentence(error) from None
    checked = made.sections["utilization"]
    decides = digest([checked.model_dump(mode="json"), tokenizer])
    some = "-".join(checked.benchmarks) if len(checked.benchmarks) < 3 else "all"
    scales = checked.scales[0].replace(".", "-")
    if len(checked.scales) > 1:
        scales += f"-to-{checked.scales[-1].replace('.', '-')}"
    return made.changed(name=f"utilization-{some}-{scales}-{decides}".lower())


def _levels(key: str, value: str) -> list[Any]:
    """``0,5%:recomputed`` as the values of a key."""
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not parts:
        raise StudyError(f"--{_option(key)} is empty; write a value, or leave it out.")
    if key != "corruption":
        return parts
    levels = []
    for part in parts:
        share, _, of = part.partition(":")
        levels.append({"share": share, **({"of": of} if of else {})})
    return levels


def _sentence(error: ValidationError) -> StudyError:
    places, what, shown = first_error(error)
    named = (*places, *re.findall(r"'(\w+)'", what))  # of several keys: in the sentence
    key = next((place for place in named if place in _KEYS), places[0] if places else "")
    return StudyError(f"--{_option(key)}{shown}: {what}; see `contextcliff utilization -h`.")


def _option(key: str) -> str:
    return _NAMES.get(key, key).replace("_", "-")
