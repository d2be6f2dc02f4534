"""What engine `kvpress` is said to take before it starts, next to what it then takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import EngineSession
from contextcliff_dagster.inference.engines.kvpress.engine import DISK_VARIABLE, KvReads, kv_memory
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster_tests.support.kv_engine import answers, entry, prompts
from contextcliff_dagster_tests.support.records.calls import LedgerSample, plan_of

CACHE_BYTES = 2 * 2 * 4 * 32 * 4
"""Of a token of the reference models: keys and values of 2 layers of 4 heads of 32 numbers."""


@pytest.mark.kv
@pytest.mark.timeout(900)
def test_what_is_said_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path))
    with EngineSession(entry("h2o", 1.0)) as session:
        done = session.submit(answers(session.engine, prompts(), 2)).result(timeout=600)
    documents = [int(str(answer.extra["kv_tokens"])) for answer in done]
    said = kv_memory(entry("h2o", 1.0), documents)
    assert said is not None
    assert said.longest == max(int(str(answer.extra["kv_bytes"])) for answer in done)
    peak = max(int(str(answer.extra["kv_peak_bytes"])) for answer in done)
    assert peak <= said.memory
    written = sum(file.stat().st_size for file in (tmp_path / "_kv_reads").iterdir())
    assert 0.5 * said.disk < written < 1.2 * said.disk


def test_memory_grows_with_the_documents_up_to_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many, endless = (kv_memory(entry(), [1_000] * n) for n in (1, 10, 10**6))
    assert few is not None
    assert many is not None
    assert endless is not None
    assert few.longest == 1_000 * CACHE_BYTES
    assert few.memory < many.memory < endless.memory < few.memory + (1 << 30)
    assert endless.disk == 8 << 30
    monkeypatch.setenv(DISK_VARIABLE, "0")
    assert kv_memory(entry(), [1_000]) == few._replace(disk=0)
    assert kv_memory(entry(), []) is None


def test_fewer_bits_take_less(tmp_path: Path) -> None:
    for dtype, times in (("float32", 1), ("bfloat16", 2)):
        said = kv_memory(entry(dtype=dtype), [1_000])
        assert said is not None
        assert said.longest == 1_000 * CACHE_BYTES // times
    folder = shutil.copytree(weights_path("reference-short"), tmp_path / "w")
    (folder / "config.json").write_text(json.dumps({"hidden_size": 128}))
    assert kv_memory(entry(weights=str(folder)), [1_000]) is None
    with pytest.raises(EngineError):
        kv_memory(entry(weights=str(tmp_path / "none")), [1_000])


def test_variants_share_what_they_read_and_h2o_reads_once_more() -> None:
    reads, names = KvReads(), ("none", "knorm@0.5", "h2o@0.5", "h2o@0.2", "snapkv@0.2")
    for name, new in zip(names, (True, False, True, False, False), strict=True):
        model = get_model(f"reference-short+{name}")
        assert [reads.add(model, "d", 100), reads.add(model, "d", 100)] == [new, False]
    assert reads.add(get_model("reference-long+none"), "d", 2_000)
    assert all(reads.add(get_model("reference-short"), "d", 100) for _ in range(2))
    short, long = reads.notes()
    assert short.startswith("reference-short on kvpress takes up to about ")
    assert "(100 tokens)" in short
    assert "including 4.1 MB for the full cache of the longest document (2,000 tokens)" in long
    assert DISK_VARIABLE in long


def test_the_estimate_says_it_and_counts_a_document_once() -> None:
    plan = plan_of(LedgerSample(1, 4), 4)
    whole, pressed, plain = (
        get_model(f"reference-short{name}") for name in ("+none", "+knorm@0.5", "")
    )
    first, both = (estimate([(None, plan)], models, None) for models in ([whole], [whole, pressed]))
    (note,) = both.notes
    assert "reference-short on kvpress takes up to about" in note
    assert first.seconds < both.seconds < 1.7 * first.seconds
    assert not estimate([(None, plan)], [plain], None).notes
