"""Whatever a damaged record holds: an example, or one sentence with the place."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
from contextcliff_dagster.corpora.registry import open_corpus
from contextcliff_dagster_tests.corpora.benchmarks import (
    test_long_texts,
    test_manufactured_lengths,
    test_multi_hop,
    test_squad,
)

WHOLE: dict[str, tuple[str, Any]] = {
    "squad": ("f.json", {"version": "v2.0", "data": [test_squad.with_unanswerable()]}),
    "hotpotqa": ("f.json", [test_multi_hop.hotpot()]),
    "2wikimultihopqa": ("f.json", [test_multi_hop.hotpot()]),
    "musique": ("f.jsonl", test_multi_hop.musique()),
    "narrativeqa": (
        "f.jsonl",
        {
            "document": {"id": "d", "kind": "k", "text": "A story.", "summary": {"text": "S."}},
            "question": {"text": "Who?"},
            "answers": [{"text": "Ada"}, {"text": "Ada L."}],
        },
    ),
    "quality": ("f.jsonl", test_long_texts.quality()),
    "qasper": (
        "f.json",
        test_long_texts.qasper(
            [test_long_texts.answer(extractive_spans=["songs"], evidence=[test_long_texts.ONE])],
            [test_long_texts.NOTHING],
        ),
    ),
    "longbench": ("f.jsonl", test_manufactured_lengths.longbench("qasper")),
    "longbench-v2": ("f.json", [test_manufactured_lengths.v2()]),
    "longbench-pro": ("f.json", [test_manufactured_lengths.pro()]),
    "babilong": ("f.json", [{"input": "A fact.", "question": "Where?", "target": "kitchen"}]),
    "l-eval": ("f.jsonl", test_manufactured_lengths.leval()),
}
ANYTHING: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 10**9, 0.5, "", " ", "x", "\ud800", [], [[]], [None], {}, {"text": 1}, ["A"]]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every node below ``value``."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [found for key, inner in items for found in [(*path, key), *places(inner, (*path, key))]]


def test_there_is_a_record_of_every_benchmark() -> None:
    assert set(WHOLE) == set(BENCHMARKS)


@pytest.mark.parametrize("kind", sorted(WHOLE))
@given(data=st.data())
def test_a_damaged_record_gives_an_example_or_one_sentence(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    name, whole = WHOLE[kind]
    value = copy.deepcopy(whole)
    *way, last = data.draw(st.sampled_from(places(value)))
    holder = value
    for key in way:
        holder = holder[key]
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[last]
    else:
        holder[last] = data.draw(ANYTHING)
    path = tmp_path / name
    path.write_text(json.dumps(value), encoding="utf-8")
    options = {"path": str(path), "allow_synthetic_length": True, "unanswerable": "ask"}
    try:
        entries = list(open_corpus(kind, options).entries())
    except CorpusError as error:
        entries, said = [], str(error)
    else:
        said = str(path)
    assert str(path) in said
    assert "\n" not in said
    for entry in entries:
        assert entry.document.text.strip()
        assert entry.example.question.strip()
        assert entry.example.answers
        assert all(isinstance(one, str) and one.strip() for one in entry.example.answers)
        assert 0 <= entry.example.metadata.get("evidence_position", 0) <= 1
        json.dumps(entry.example.metadata).encode()
