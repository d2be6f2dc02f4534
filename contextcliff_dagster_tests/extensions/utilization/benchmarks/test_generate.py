"""What is true of every document, whatever its benchmark, size and seed."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pytest

from contextcliff_dagster.extensions.utilization.benchmarks.asking import question_text
from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    ASKS,
    BENCHMARKS,
    SCHEMAS,
    Benchmark,
    BenchmarkName,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    SMALLEST,
    generate,
    parameters_for,
)

GOLDEN = {
    "warehouse": "a2cbd2e23d7f292b",
    "constraints": "25b1a89182b75d7c",
    "network": "4567d9303c309008",
}


def written(data: Benchmark) -> str:
    questions = [
        (one.text, one.answer, one.evidence, one.margin, one.choices) for one in data.questions
    ]
    return json.dumps([data.records, questions, data.notes])


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_same_seed_gives_the_same_bytes_everywhere(name: BenchmarkName) -> None:
    data = generate(name, 7, parameters_for(name, 150), questions=6)

    assert hashlib.sha256(written(data).encode()).hexdigest()[:16] == GOLDEN[name]
    assert written(generate(name, 8, parameters_for(name, 150), questions=6)) != written(data)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("evidence", ["growing", "fixed"])
def test_a_thousand_small_documents(name: BenchmarkName, evidence: str) -> None:
    least = len(generate(name, 0, parameters_for(name, SMALLEST[name])).records)
    kinds: Counter[str] = Counter()
    for seed in range(1000):
        size = least + seed % 50
        data = generate(name, seed, parameters_for(name, size), evidence=evidence)  # type: ignore[arg-type]
        assert len(data.records) == size
        assert len({json.dumps(record) for record in data.records}) == size
        assert len({one.text for one in data.questions}) == 4
        for record in data.records:
            (spec,) = (s for s in SCHEMAS[name] if s.fixed.items() <= record.items())
            assert list(record) == [field.key for field in spec.fields]
        for one in data.questions:
            kinds[one.kind] += 1
            assert set(one.about) == {"ask", *ASKS[one.about["ask"]]}
            assert one.text == question_text(one.about)
            assert one.margin > 0
            assert list(one.evidence) == sorted(set(one.evidence))
            low, *_, high = one.choices
            assert one.answer in one.choices or int(low) <= int(one.answer) <= int(high)
    assert kinds["lookup"] == kinds["aggregate"] == 1000
    assert kinds["chain"] == (2000 if name == "constraints" else 1000)
