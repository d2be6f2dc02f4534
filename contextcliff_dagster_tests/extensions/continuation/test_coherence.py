"""Coherence in a study's records: by a server, by the files of this machine, or missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.continuation import scoring
from contextcliff_dagster.extensions.continuation.experiment import CONTINUATION
from contextcliff_dagster.extensions.continuation.results import ContinuationResult
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study
from contextcliff_dagster.studies.study import Leave, leave_needed
from contextcliff_dagster_tests.extensions.continuation.test_experiment import small
from contextcliff_dagster_tests.support.servers.embedding_server import (
    EmbeddingServer,
    embedding_server,
    vectors,
)
from contextcliff_dagster_tests.support.staleness import stale

KEY = "canary-7f1c90aa52"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as one:
        yield one


def asked_of(server: EmbeddingServer, **more: Any) -> dict[str, Any]:
    return {"base_url": server.base_url, "model": "tiny", **more}


def outcome_of(study: Study) -> tuple[pd.DataFrame, ContinuationResult]:
    with StudyRun.open(study, Store.default()) as run:
        (result,) = CONTINUATION.read_results(run)
        return CONTINUATION.read_records(run).sort_values("example_id"), result


def test_a_server_embeds_the_sentences_and_no_score_changes(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    without, plain = outcome_of(small(folder, "none"))
    assert without["near_coherence"].isna().all()
    assert without["embedder"].isna().all()
    assert plain.embedder is None
    monkeypatch.setenv("MY_KEY", KEY)
    study = small(folder, asked_of(server, api_key_env="MY_KEY"))
    rebuild_report(study)
    records, result = outcome_of(study)
    assert records["near_coherence"].between(0, 1).all()
    far = records["far_coherence"].dropna()  # short ones have too few sentences
    assert len(far)
    assert far.between(0, 1).all()
    assert records["author_near_coherence"].between(0, 1).all()
    author = next(one.author for one in result.metrics if one.name == "near_coherence")
    assert author is not None
    assert author.n_passages == 4
    longest = records.sort_values("compared_words").groupby("passage")["author_near_coherence"]
    assert author.mean == pytest.approx(longest.last().mean())
    assert next(one.author for one in plain.metrics if one.name == "near_coherence") is None
    name = f"tiny at 127.0.0.1:{server.server_port}"
    assert set(records["embedder"]) == {name} == {result.embedder}
    assert records["score"].tolist() == without["score"].tolist()
    assert not any("Coherence" in one for one in result.warnings)
    assert {key for _, key, _ in server.asked} == {f"Bearer {KEY}"}
    for file in folder.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_what_a_server_did_not_embed_is_missing_is_named_and_is_asked_for_again(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small(folder, asked_of(server))
    server.replies = [(200, vectors), (401, {"error": "no"})]
    monkeypatch.setattr(scoring, "_TEXTS_AT_ONCE", 1)
    rebuild_report(study)
    records, result = outcome_of(study)
    assert records["score"].notna().all()
    measured = int(records["near_coherence"].notna().sum())
    assert 0 < measured < len(records) == 8
    assert not (records["near_coherence"] == 0).any()
    lacking = [one for one in result.warnings if "Coherence is missing" in one]
    assert len(lacking) == 1
    assert f"for {8 - measured} of 8" in lacking[0]
    server.replies, server.asked = [(200, vectors)], []
    rebuild_report(study)
    again, result = outcome_of(study)
    assert again["near_coherence"].notna().all()
    assert not any("Coherence" in one for one in result.warnings)
    known = records.set_index("example_id")["near_coherence"].dropna()
    assert again.set_index("example_id")["near_coherence"][known.index].tolist() == known.tolist()
    server.replies, server.asked = [(500, {})], []
    rebuild_report(study)
    kept, _ = outcome_of(study)
    assert kept["near_coherence"].tolist() == again["near_coherence"].tolist()
    assert server.asked == [], "what is known is not asked for again"


def test_without_the_local_files_auto_is_silent_and_local_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "local_files", lambda: None)
    monkeypatch.setattr(scoring, "local_embedder", lambda: None)
    rebuild_report(small(folder, "auto"))
    records, result = outcome_of(small(folder, "auto"))
    assert records["near_coherence"].isna().all()
    assert not any("Coherence" in one for one in result.warnings)
    rebuild_report(small(folder, "local"))
    _, result = outcome_of(small(folder, "local"))
    assert any("pip install 'contextcliff-dagster[embeddings]'" in one for one in result.warnings)


def test_the_local_files_are_the_default(folder: Path) -> None:
    if scoring.local_files() is None:
        pytest.skip("needs the extra embeddings")
    rebuild_report(small(folder, "auto"))
    records, result = outcome_of(small(folder, "auto"))
    assert records["near_coherence"].between(0, 1).all()
    assert result.embedder == "wordllama l2_supercat_256"


def test_another_embedder_turns_records_stale_and_predictions_not(texts: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        profile_study(small(texts, "none"), instance=instance)
        asked = {"base_url": "http://127.0.0.1:9/v1", "model": "tiny"}
        edited = stale(small(texts, asked), instance)
        assert "continuation_records" in edited
        assert not any(one.startswith("writer-human|") for one in edited)
        assert "continuation_manifest" not in edited


@pytest.mark.parametrize(
    ("embeddings", "sentence"),
    [
        ("remote", "'auto', 'local' or 'none'"),
        (None, "embeddings"),
        ({"model": "tiny"}, "base_url"),
        ({"base_url": "127.0.0.1:8000", "model": "tiny"}, "should be an address"),
        ({"base_url": f"http://u:{KEY}@host/v1", "model": "tiny"}, "without user and key"),
        ({"base_url": "http://host/v1", "model": ""}, "model"),
        ({"base_url": "http://host/v1", "model": "m", "api_key_env": "a b"}, "api_key_env"),
        ({"base_url": "http://host/v1", "model": "m", "key": KEY}, "key"),
    ],
)
def test_a_wrong_key_is_one_sentence(texts: Path, embeddings: Any, sentence: str) -> None:
    with pytest.raises(StudyError, match=sentence) as caught:
        small(texts, embeddings)
    assert KEY not in str(caught.value)


def test_texts_of_a_study_from_elsewhere_are_sent_nowhere_without_leave(
    folder: Path, server: EmbeddingServer
) -> None:
    study = small(folder, asked_of(server)).with_leave(Leave(folder))
    needed: Mapping[str, list[str]] = {
        part: leave_needed(study, part) for part in ("", "continuation.texts")
    }
    host = f"server 127.0.0.1:{server.server_port}"
    assert needed == {"": [host], "continuation.texts": []}
    rebuild_report(study)
    records, _ = outcome_of(study)
    assert server.asked == []
    assert records["near_coherence"].isna().all()
    assert records["score"].notna().all()
    rebuild_report(study.trusted())
    assert server.asked
