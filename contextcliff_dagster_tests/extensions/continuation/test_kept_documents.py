"""What a finished study needs of its texts: nothing, as long as its documents stay the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from contextcliff_dagster.archive.container import Allowance
from contextcliff_dagster.archive.results import pack, unpack
from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import StoreError, StudyError
from contextcliff_dagster.experiments.restore import kept_lists, restore
from contextcliff_dagster.extensions.continuation import documents
from contextcliff_dagster.extensions.continuation.documents import DOCUMENTS
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import load_studies
from contextcliff_dagster.studies.study import Leave
from contextcliff_dagster_tests.extensions.continuation.test_experiment import (
    novel,
    records_of,
    small,
)

Capsys = pytest.CaptureFixture[str]


def forget() -> None:
    """As another process: nothing of a text is remembered."""
    for kept in (documents._read, documents._extracted, documents._text_digest):
        kept.cache_clear()
    documents._file_digest.cache_clear()


def test_a_finished_study_is_reported_and_goes_on_without_its_texts(folder: Path) -> None:
    made, records = DOCUMENTS.frozen(small(folder), Store.default()), records_of(small(folder))
    forget()
    (folder / "harbour.txt").unlink()
    (folder / "orchard.txt").rename(folder / "elsewhere.txt")
    assert DOCUMENTS.frozen(small(folder), Store.default()) == made
    rebuild_report(small(folder))
    assert records_of(small(folder))["score"].tolist() == records["score"].tolist()
    more = profile_study(small(folder, rounds=2))
    assert more.calls["writer-human"].sent == len(records)
    both = records_of(small(folder, rounds=2))
    assert sorted(set(both["round"])) == [0, 1]
    assert set(records["raw_output"]) <= set(both["raw_output"])
    assert both.groupby(["passage", "context_tokens"])["raw_output"].nunique().min() == 2
    with pytest.raises(StudyError, match=r"harbour\.txt of study 'prose' cannot be read: No such"):
        profile_study(small(folder, seed=3))


def test_a_text_that_is_as_it_was_is_not_extracted_again(folder: Path) -> None:
    forget()
    DOCUMENTS.freeze(small(folder), Store.default())
    assert documents._extracted.cache_info().misses == 0


def test_a_changed_text_makes_documents_anew(folder: Path) -> None:
    made = DOCUMENTS.frozen(small(folder), Store.default())
    (folder / "orchard.txt").write_text(novel(7, 700), encoding="utf-8")
    assert DOCUMENTS.frozen(small(folder), Store.default()) is None
    done = profile_study(small(folder))
    # Those of the other text are as they were, and so are their answers.
    assert done.calls["writer-human"].sent == 2 * 2
    assert DOCUMENTS.frozen(small(folder), Store.default()) != made


def test_each_text_is_read_once_however_many_there_are(texts: Path) -> None:
    names = [f"text{number:02d}.txt" for number in range(12)]
    for number, name in enumerate(names):
        (texts / name).write_text(novel(number, 260), encoding="utf-8")
    study = small(texts, texts=names, passages=1)
    forget()
    DOCUMENTS.freeze(study, Store.default())
    assert documents._read.cache_info().misses == len(names)


def test_without_leave_a_finished_study_is_reported_from_what_is_kept(folder: Path) -> None:
    forget()
    foreign = small(folder).with_leave(Leave(folder / "of-another"))
    with pytest.raises(StudyError, match=r"outside of its folder"):
        documents.read_source(foreign, 0)
    rebuild_report(foreign)


def test_a_list_without_digests_needs_the_text(folder: Path, contextcliff_home: Path) -> None:
    (folder / "harbour.txt").unlink()
    forget()
    (listed,) = contextcliff_home.rglob("continuation_documents/manifest.json")
    listed.write_text(yaml.safe_dump({"made_by": "earlier"}), encoding="utf-8")
    with pytest.raises(StudyError, match=r"harbour\.txt of study 'prose' cannot be read"):
        rebuild_report(small(folder))


def test_an_archive_brings_a_study_to_another_store_without_its_texts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    before = records_of(small(folder))
    for name in ("harbour", "orchard"):
        (folder / f"{name}.txt").unlink()
    forget()
    file = tmp_path / "prose.zip"
    assert main(["export", str(folder / "prose.yaml"), str(file)]) == 0
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(elsewhere))
    monkeypatch.chdir(tmp_path)
    (folder / "prose.yaml").unlink()
    for _ in range(2):
        assert main(["import", str(file)]) == 0, capsys.readouterr().err
    assert main(["report", "prose"]) == 0, capsys.readouterr().err
    study = load_studies()["prose"]
    after = records_of(study)
    assert after["score"].tolist() == before["score"].tolist()
    assert DOCUMENTS.frozen(study, Store.default()) is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: row | {"text": row["text"] + " More."},
        lambda row: row | {"source": "../../evil"},
        lambda row: row | {"passage": "harbour-../../evil"},
        lambda row: row | {"length_tokens": "many"},
        lambda row: {key: value for key, value in row.items() if key != "kind"},
    ],
)
def test_documents_that_are_none_of_the_study_are_refused(
    folder: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    study, store = small(folder), Store.default()
    DOCUMENTS.freeze(study, store)
    (kept,) = kept_lists(study, store).values()
    rows = [dict(row) for row in kept.rows]
    rows[-1] = spoil(rows[-1])
    fresh = Store(tmp_path / "fresh")
    file = tmp_path / "prose.zip"
    with pytest.raises(StoreError, match=r"prose\.zip is damaged or was tampered with"):
        lists = unpack(pack({"continuation": replace(kept, rows=rows)}), Allowance(file, 1 << 20))
        restore(study, fresh, lists, file)()
    assert not fresh.root.exists()
