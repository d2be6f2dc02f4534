"""docs/studies.md, docs/models.md and the commands of docs/cli.md are what the code declares.

The examples of keys work.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
from contextcliff_dagster.corpora.registry import CORPUS_KINDS, open_corpus
from contextcliff_dagster.inference.models.entry import ModelEntry
from contextcliff_dagster.studies.experiment_table import experiment_names, load_experiment
from contextcliff_dagster.studies.study import Study
from contextcliff_dagster_tests.support.paths import DOCS
from tools.write_reference_pages import (
    BENCHMARK,
    CORPUS_OPTIONS,
    PAGES,
    description,
    example,
    experiment_sections,
    sections,
)

STUDY = {"name": "a", "corpus": {"kind": "file"}, "tokenizer": "reference", "models": ["m"]}
ENTRY = {"name": "m", "engine": "openai", "base_url": "http://127.0.0.1/v1"}
EVERY = [
    (root, within, model, key)
    for root in (Study, ModelEntry)
    for within, model in [
        ("", root),
        *sections(root),
        *(experiment_sections() if root is Study else ()),
    ]
    for key in model.model_fields
]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_as_the_code_declares_it(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "make docs"


@pytest.mark.parametrize(
    ("root", "within", "model", "key"), EVERY, ids=[f"{r.__name__}.{w}.{k}" for r, w, _, k in EVERY]
)
def test_every_key_has_a_meaning_and_an_example_that_is_valid(
    root: Any, within: str, model: Any, key: str
) -> None:
    info = model.model_fields[key]
    if (root, key) == (ModelEntry, "name"):
        return  # the key of the entry itself
    assert len(description(info)) > 4
    given = example(key, info)
    if given is None:
        return
    assert given[key] not in (None, "", [], {})
    base = STUDY if root is Study else ENTRY
    whole = {**base, within: given} if within else {**base, **given}
    if whole.get("engine", "openai") != "openai":
        del whole["base_url"]
    if engine := {"vllm": "vllm", "kv": "kvpress"}.get(within):
        whole = {"name": "m", "engine": engine, within: given}
    checked = root.model_validate(yaml.safe_load(yaml.safe_dump(whole)))
    part = getattr(checked, within) if within else checked
    value = getattr(part, key)
    if isinstance(value, tuple):
        value = [one.model_dump() if isinstance(one, BaseModel) else one for one in value]
    assert value == given[key]


def test_every_experiment_has_an_example() -> None:
    for name in experiment_names():
        experiment = load_experiment(name)
        if experiment.section is not None:
            asked = Study.model_validate({**STUDY, name: experiment.example})
            assert asked.sections[name]


@pytest.mark.parametrize("kind", CORPUS_KINDS)
def test_the_options_of_a_corpus_are_those_it_takes(kind: str, tmp_path: Path) -> None:
    table = CORPUS_OPTIONS.get(kind, BENCHMARK)
    own = BENCHMARKS[kind].own_options if kind in BENCHMARKS else {}
    needed = {"path": str(tmp_path)} if table.get("path") else {}
    message = refusal(kind, {**needed, "no_such": 1})
    assert "has no option 'no_such'" in message
    accepted = set(re.findall(r"\w+", message.split("it has ")[1]))
    assert {*table, *own} - {"allow_synthetic_length"} == accepted
    for name, option in table.items():
        said = refusal(kind, {**needed, name: option.example})
        assert not re.search(r"must be|has no option|is one of", said), name


def test_every_corpus_that_the_page_shows_is_one(tmp_path: Path) -> None:
    shown = [
        yaml.safe_load(one)["corpus"]
        for one in re.findall(r"`(corpus: .+?)`", PAGES["studies.md"]())
    ]
    assert {"kind": "squad", "text": "article"} in shown
    for options in shown:
        kind = options.pop("kind")
        needed = {"path": str(tmp_path)} if CORPUS_OPTIONS.get(kind, BENCHMARK).get("path") else {}
        said = refusal(kind, {**needed, **options})
        assert not re.search(r"must be|has no option|is one of", said), (kind, options)


def refusal(kind: str, options: dict[str, Any]) -> str:
    """What is said against these options; empty for nothing."""
    try:
        open_corpus(kind, options)
    except CorpusError as error:
        return str(error)
    return ""
