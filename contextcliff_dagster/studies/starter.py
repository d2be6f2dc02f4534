"""The text of a new study file: its values with explanations, and optional lines to uncomment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from contextcliff_dagster.reporting.wording import RIGHT_OR_WRONG, level, lost_of
from contextcliff_dagster.studies.study import Study

OPTIONAL = (
    ("controls: [no_context, oracle]", "ask again without the document: is it length at all?"),
    ("latency: {ttft_ms_p95: 2000}", "a limit on the time to the first token, in ms"),
    ("budget: {usd: 5}", "a hard limit: no call is made that might exceed it"),
    ("calls: {concurrency: 1}", "one call at a time, for clean times"),
    ("targeted: {pilot: 5, until: 5%}", "begin small, then go on where a drop may be"),
    ('schedule: {cron: "0 3 * * 1"}', "measure again every Monday at 3, from Dagster"),
)
"""Lines that are commented out in a new study file, and what each of them does."""


def answers_lost(tolerance: float) -> str:
    """Express a tolerance as lost answers.

    >>> answers_lost(0.3)
    'up to 3 of 10 right answers lost'
    """
    lost, of = lost_of(tolerance)
    return f"up to {lost:,} of {of:,} right answers lost"


def study_text(study: Study, about: str) -> str:
    """Return ``study`` as commented YAML that reads back as the same study.

    ``about``: the study's question, which becomes the first line.
    """
    return "".join(f"{line}\n" for line in _lines(study, about))


def _lines(study: Study, about: str) -> Iterator[str]:
    recall = study.corpus.options.get("questions") == "recall"
    yield f"# {about}"
    yield "# Every key, with its default and an example: docs/studies.md of ContextCliff."
    yield f"name: {study.name}"
    if study.description:
        yield f"description: {_value(study.description)}"
    yield ""
    yield "# Documents and questions; every document keeps its natural length."
    yield "corpus:"
    yield f"  kind: {study.corpus.kind}"
    for key, value in study.corpus.options.items():
        comment = (
            "   # made from the texts: copying, not understanding" if value == "recall" else ""
        )
        yield f"  {key}: {_value(value)}{comment}"
    if recall:
        yield "  # questions: questions.csv   # your own: columns document, question, answers"
    yield ""
    yield "# Counts the tokens that lengths, bins and the cap are given in."
    yield f"tokenizer: {_value(study.tokenizer)}"
    yield ""
    yield "# Documents are sorted by length into so many bins."
    yield f"bins: {_section(study, 'bins')}"
    yield ""
    yield "# More samples a bin give narrower intervals, and cost more."
    yield f"sampling: {_section(study, 'sampling')}"
    yield ""
    yield "prompt:"
    for key, value in _shown_values(study, "prompt").items():
        yield f"  {key}: {_value(value)}"
    yield "  # system: system.txt          # a file with the system text"
    yield "  # template: template.txt      # a file with {document} and {question}"
    yield ""
    yield "# Names of models.yaml; several are compared."
    yield f"models: {_value(list(study.models))}"
    yield ""
    yield "# em: the whole answer is right; f1: share of its words; contained: the answer is in it."
    yield f"scoring: {_section(study, 'scoring')}"
    yield ""
    share = study.analysis.tolerance
    means = f": {answers_lost(share)}" if study.scoring.primary in RIGHT_OR_WRONG else ""
    yield f"# The safe cap: up to it, the mean score falls by {level(share)} at most{means}."
    yield f"analysis: {_section(study, 'analysis')}"
    yield ""
    yield "# Often wanted:"
    width = max(len(line) for line, _ in OPTIONAL)
    for line, meaning in OPTIONAL:
        yield f"# {line:<{width}}   # {meaning}"


def _shown_values(study: Study, name: str) -> dict[str, Any]:
    """Return a section's values that differ from the defaults, and those always shown."""
    keys = {
        "bins": {"count"},
        "sampling": {"samples_per_bin", "questions_per_document"},
        "prompt": {"max_output_tokens"},
        "scoring": {"primary"},
        "analysis": {"tolerance"},
    }[name]
    section = getattr(study, name)
    values = section.model_dump(mode="json", exclude_none=True)
    differing = section.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {key: value for key, value in values.items() if key in keys or key in differing}


def _section(study: Study, name: str) -> str:
    values = _shown_values(study, name)
    return f"{{{', '.join(f'{key}: {_value(value)}' for key, value in values.items())}}}"


def _value(value: Any) -> str:
    """Format a value as JSON, which is also YAML; plain words need no quotes."""
    if isinstance(value, str) and _plain(value):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> bool:
    import yaml

    try:
        in_both = yaml.safe_load(f"a: {text}\nb: [{text}]") == {"a": text, "b": [text]}
        return in_both and "#" not in text
    except yaml.YAMLError:
        return False
