"""Lengths by another tokenizer than the model's, and by a model's own server, through the chain."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.experiments.common.preparation import prepare_corpus, prepare_length_map
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.records.calls import dialect_server, read_log
from contextcliff_dagster_tests.support.tiny_study import TINY

pytestmark = pytest.mark.usefixtures("unrecorded")


def counted_with(tokenizer: str, folder: Path) -> Study:
    path = folder / "tiny.yaml"
    path.write_text(TINY.replace("tokenizer: reference", f'tokenizer: "{tokenizer}"'))
    return load_study(path)


def test_the_report_says_what_the_model_counts_for_a_token_of_the_study(
    study: Study, store: Store, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    short = ["reference-short"]
    for of, words in (
        (study, "The server counts 1.00 tokens for one of <code>reference</code> in every bin"),
        (
            counted_with("tiktoken:cl100k_base", tmp_path),
            "of the document in <code>tiktoken:cl100k_base</code>",
        ),
    ):
        profile_study(of, models=short, store=store, instance=instance)
        page = next(store.root.glob("tiny/report/2*/report.html")).read_text()
        assert words in page
    (cliffs,) = [
        json.loads(p.read_text()) for p in store.root.glob("tiny/profiles/*/*/cliffs.json")
    ]
    medians = [row["median"] for row in cliffs["token_ratio"]["bins"]]
    texts = [row["text"] for row in _documents(store)]
    own, theirs = open_tokenizer("tiktoken:cl100k_base"), open_tokenizer("reference")
    truth = sum(theirs.count_many(texts)) / sum(own.count_many(texts))
    assert medians == pytest.approx([truth] * 3, rel=0.05)


def test_a_study_is_counted_by_the_server_of_its_model(
    store: Store, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, log = counted_with("server:served", tmp_path), tmp_path / "log"
    with dialect_server(kind="vllm", log=str(log)) as url:
        models = {"served": {"engine": "openai", "base_url": url, "model_id": "served"}}
        (tmp_path / "models.yaml").write_text(json.dumps({"models": models}))
        monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
        prepare_corpus(study, store)
        lengths = prepare_length_map(study, store)
        assert lengths.counted_by == (
            f"the server at {url.removesuffix('/v1')} (vLLM), model served"
        )
        assert len([line for line in read_log(log) if line["path"] == "/tokenize"]) == 1 + 60
        profile_study(study, models=["served"], store=store, instance=instance)
    local = open_tokenizer("reference")
    header = json.loads((store.manifest_dir("tiny") / "manifest.json").read_text())["header"]
    assert header["tokenizer"] == "server:served"
    assert header["lengths"]["tokenizer_fingerprint"] == lengths.tokenizer_fingerprint
    counted = {row["document_id"]: local.count(row["text"]) for row in _documents(store)}
    assert set(counted.values()) >= {lengths.min_tokens, lengths.max_tokens}
    # The server is gone; what it counted is frozen, and the report needs it no more.
    rebuild_report(study, store=store)
    assert prepare_length_map(study, store).tokens == lengths.tokens
    with pytest.raises(StudyError, match="does not answer"):
        prepare_length_map(study, Store(tmp_path / "elsewhere"))


def _documents(store: Store) -> list[dict[str, str]]:
    import pyarrow.parquet as pq

    (path,) = store.root.glob("tiny/preparation/corpus/documents.parquet")
    rows: list[dict[str, str]] = pq.read_table(path).to_pylist()
    return rows
