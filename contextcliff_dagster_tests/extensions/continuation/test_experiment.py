"""The experiment as a study has it: documents, seeds that are sent, scores, arms, report."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.extensions.continuation.documents import DOCUMENTS, plan_of, require_texts
from contextcliff_dagster.extensions.continuation.experiment import CONTINUATION
from contextcliff_dagster.extensions.continuation.prose.words import read_prose, sentence_ends
from contextcliff_dagster.run.study import prepare_study, profile_study
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study
from contextcliff_dagster_tests.extensions.continuation.prose import passages as ours
from contextcliff_dagster_tests.support.o200k import O200K
from contextcliff_dagster_tests.support.staleness import stale


def novel(seed: int, sentences: int = 1400) -> str:
    """Sentences of our own prose in a drawn order: long enough to continue, and always the same."""
    prose = " ".join(
        value for name, value in vars(ours).items() if name.isupper() and isinstance(value, str)
    )
    ends = sentence_ends(prose)
    known = [prose[a:b].strip() for a, b in zip((0, *ends[:-1]), ends, strict=True)]
    rng = random.Random(seed)
    turns = range(1 + sentences // len(known))
    return " ".join(one for _ in turns for one in rng.sample(known, len(known)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("harbour", "orchard")):
        (tmp_path / f"{name}.txt").write_text(novel(number), encoding="utf-8")
    return tmp_path


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME")


def study_of(folder: Path, models: Any = ("writer-human",), **keys: Any) -> Study:
    section = {
        "texts": ["harbour.txt", "orchard.txt"],
        "start_context": 512,
        "max_context": "2k",
        "max_tokens": 200,
        "passages": 3,
        "rounds": 2,
        **keys,
    }
    study = {"name": "prose", "models": list(models), "continuation": section}
    (folder / "prose.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    return find_study(str(folder / "prose.yaml"))


def small(folder: Path, embeddings: Any = "none", **more: Any) -> Study:
    """With leave to ask the server that it names."""
    keys = {"max_context": 1024, "passages": 2, "rounds": 1, "embeddings": embeddings, **more}
    return study_of(folder, **keys).trusted()


def records_of(study: Study) -> Any:
    with StudyRun.open(study, Store.default()) as run:
        return CONTINUATION.read_records(run)


def test_a_study_has_its_assets_and_partitions(folder: Path) -> None:
    study = study_of(folder, temperature=[1.0, 0.5])
    assets = {key.path[-1]: asset for asset in study_assets(study) for key in asset.keys}
    steps = ("documents", "manifest", "predictions", "records", "result")
    assert assets.keys() == {*(f"continuation_{one}" for one in steps), "cost_estimate", "report"}

    def keys(name: str) -> list[str]:
        partitions = assets[name].partitions_def
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        if "cell" in partitions.partition_dimension_names:
            return list(partitions.get_partitions_def_for_dimension("cell").get_partition_keys())
        return [str(key) for key in partitions.get_partition_keys()]

    assert keys("continuation_documents")[:2] == ["harbour|human", "harbour|p000"]
    assert keys("continuation_predictions") == [
        f"writer-human.c{n:06d}{hot}" for hot in ("", "-t0_5") for n in (512, 1024, 2048)
    ]


def test_documents_end_at_one_point_and_fit_the_window(
    folder: Path, contextcliff_home: Path
) -> None:
    study, store = study_of(folder), Store.default()
    made = DOCUMENTS.freeze(study, store)
    assert made.values["contexts"] == 2 * 3 * 3
    assert made == DOCUMENTS.freeze(study, store) == DOCUMENTS.frozen(study, store)
    reserved = plan_of(study).reserved
    with StudyRun.open(study, store) as run:
        (source,) = CONTINUATION.sources(run)
        by_passage: dict[str, list[str]] = {}
        for size in (512, 1024, 2048):
            for sample in source.samples.planned(f"c{size:06d}", 99):
                text = source.samples.document_text(sample.example.document_id)
                assert O200K.count(text) == sample.length_tokens <= size - reserved
                by_passage.setdefault(str(sample.example.metadata["passage"]), []).append(text)
    assert len(by_passage) == 6
    for texts in by_passage.values():
        assert texts[2].endswith(texts[1])
        assert texts[1].endswith(texts[0])


def test_writers_of_known_ability_are_told_apart(folder: Path, contextcliff_home: Path) -> None:
    study = study_of(folder, ("writer-human", "writer-planted"), max_context="8k", passages=4)
    done = profile_study(study)
    records = records_of(study)
    assert [calls.sent for calls in done.calls.values()] == [2 * 4 * 5 * 2] * 2
    assert len(records) == 2 * 2 * 4 * 5 * 2
    assert records["score"].between(0, 1).all()
    assert (records["compared_words"] > 0).all()
    planted = records[records["model"] == "writer-planted"]
    long = planted["context_tokens"] > 4096
    assert set(planted[~long]["collapse"]) == {""}
    looped = planted[long & (planted["collapse"] != "")]
    assert 3 <= len(looped) <= 13, "half of 16"
    assert (looped["score"] == 0).all()
    human = records[records["model"] == "writer-human"]
    assert set(human["collapse"]) == {""}
    # The same words at every size: round and point decide, and not the context's length.
    assert human.groupby(["passage", "round"])["raw_output"].nunique().max() > 1
    with StudyRun.open(study, Store.default()) as run:
        (result,) = CONTINUATION.read_results(run)
    assert [arm.arm for arm in result.arms] == ["writer-human", "writer-planted"]
    assert result.arms[1].verdict != "no_decline"
    lix = next(one for one in result.metrics if one.name == "lix")
    assert lix.author is not None
    assert [size.n for size in lix.arms[0].sizes] == [16] * 5
    assert result.recitation is not None
    html = Path(done.report.html).read_text("utf-8")
    assert '"name":"Readability (LIX)"' in html
    assert "temperature 1, top-k 100, top-p 1" in html
    page = Path(done.report.md).read_text("utf-8")
    assert "writer-planted" in page
    again = profile_study(study)
    assert sum(calls.sent for calls in again.calls.values()) == 0


def test_an_edit_turns_stale_what_depends_on_it(folder: Path, contextcliff_home: Path) -> None:
    study = study_of(folder, max_context=1024)
    with dg.DagsterInstance.ephemeral() as instance:
        profile_study(study, instance=instance)
        assert stale(study, instance) == set()
        edited = study_of(folder, max_context=1024, margin=0.2)
        assert stale(edited, instance) == {"continuation_result", "cost_estimate"}
        asked = stale(study_of(folder, max_context=1024, top_k=5), instance)
        assert "writer-human.c000512" in asked
        assert not {"continuation_manifest", "harbour|p000"} & asked
        for keys in ({"max_context": 1024, "seed": 5}, {"max_context": 2048}):
            made = stale(study_of(folder, **keys), instance)
            assert {"continuation_manifest", "harbour|p000", "harbour|human"} <= made
        assert {"writer-human.c000512", "writer-human.c002048"} <= made


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"texts": ["lost.txt"]}, r"lost\.txt of study 'prose' cannot be read: No such file"),
        ({"passages": 400}, r"Text 'harbour' has [\d,]+ tokens; 400 passages"),
        ({"max_context": "1M"}, r"Text 'harbour' has [\d,]+ tokens"),
        ({"passages": 60, "max_tokens": 250, "max_context": 512}, r"further passages of 175 words"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(
    folder: Path, contextcliff_home: Path, keys: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(StudyError, match=sentence):
        profile_study(study_of(folder, **keys))


@pytest.mark.parametrize(("engine", "fits"), [("continuation-human", 1024), ("openai", 1024 - 128)])
def test_a_size_that_fits_into_no_window_is_refused_before_anything_is_read(
    folder: Path,
    contextcliff_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    fits: int,
) -> None:
    entry = {"engine": engine, "window_tokens": 1024, "tokenizer": "tiktoken:o200k_base"}
    if engine == "openai":
        entry |= {"model_id": "m", "base_url": "http://127.0.0.1:9/v1"}
    (folder / "models.yaml").write_text(yaml.safe_dump({"models": {"small": entry}}))
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(folder / "models.yaml"))
    with pytest.raises(StudyError, match=rf"lower `continuation.max_context` to {fits:,}, which"):
        require_texts(study_of(folder, ("small",), max_context=fits + 1))
    require_texts(study_of(folder, ("small",), max_context=fits))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"texts": []}, "at least 1 item"),
        ({"texts": ["a/x.txt", "b/x.txt"]}, "two texts have the same name"),
        ({"max_context": "many"}, "not a number of tokens"),
        ({"max_context": 100}, "below the smallest"),
        ({"max_tokens": 400}, "the smallest window"),
        ({"temperature": [1, 1]}, "listed twice"),
        ({"temperature": 3}, "less than or equal to 2"),
    ],
)
def test_a_wrong_key_is_one_sentence(folder: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StudyError, match=sentence):
        study_of(folder, **keys)


def test_a_dry_run_makes_nothing(
    folder: Path, contextcliff_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(folder)
    prepared = prepare_study(study, keep=False)
    assert prepared.estimate.calls == 2 * 3 * 3 * 2
    assert DOCUMENTS.frozen(study, Store.default()) is None
    assert main(["profile", str(folder / "prose.yaml"), "--dry-run"]) == 0
    assert "36 calls" in capsys.readouterr().out


def test_the_authors_passages_have_the_words_of_the_plan(
    folder: Path, contextcliff_home: Path
) -> None:
    from contextcliff_dagster.extensions.continuation.documents import passages

    study = study_of(folder)
    rows = list(passages(study, Store.default()))
    assert {row["kind"] for row in rows} == {"author", "human"}
    assert {len(read_prose(row["text"]).words) for row in rows} == {plan_of(study).words}
    author = [row["text"] for row in rows if row["kind"] == "author"]
    human = [row["text"] for row in rows if row["kind"] == "human"]
    assert len(author) == 6
    assert len(human) >= 20
