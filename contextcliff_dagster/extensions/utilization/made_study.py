"""A study made on the spot of the experiment utilization, from the options of its command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.cli.measuring.section_options import SectionOptions, digest
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.section import UtilizationSection

if TYPE_CHECKING:
    from contextcliff_dagster.studies import Study

_OUTPUT_TOKENS = 64
UTILIZATION_OPTIONS = SectionOptions(
    "utilization",
    UtilizationSection,
    "contextcliff utilization",
    keys=(
        *("benchmarks", "scales", "formats", "seeds", "questions", "evidence", "match", "order"),
        *("verbosity", "corruption", "thought", "question_place", "margin", "tokenizer"),
        "factorial",
    ),
    names={"benchmarks": "--benchmark", "scales": "--scale"},
    help={
        "corruption": "Share of changed records, e.g. 0,5%; 5%:recomputed works the answers out "
        "again.",
    },
)


def made_study(keys: Mapping[str, Any], models: tuple[str, ...]) -> Study:
    """Return the study that the options describe; options like these get a name of their own.

    Raises:
        StudyError: no model is named, a model is unknown, or an option has no such value.
    """
    from contextcliff_dagster.inference.models.models_file import get_model, load_models

    if not models:
        raise StudyError(
            "`contextcliff utilization` needs --model: name the model to measure "
            "(`contextcliff models`)."
        )
    known = load_models()
    entries = [get_model(name, known) for name in models]
    tokenizer = keys.get("tokenizer") or entries[0].tokenizer or ""
    made = UTILIZATION_OPTIONS.study(
        {key: value for key, value in keys.items() if key != "tokenizer"},
        description="Utilization: the same records in several formats.",
        tokenizer=tokenizer,
        models=list(dict.fromkeys(models)),
        prompt={"max_output_tokens": _OUTPUT_TOKENS},
    )
    checked = made.sections["utilization"]
    decides = digest([checked.model_dump(mode="json"), tokenizer])
    some = "-".join(checked.benchmarks) if len(checked.benchmarks) < 3 else "all"
    scales = checked.scales[0].replace(".", "-")
    if len(checked.scales) > 1:
        scales += f"-to-{checked.scales[-1].replace('.', '-')}"
    return made.changed(name=f"utilization-{some}-{scales}-{decides}".lower())
