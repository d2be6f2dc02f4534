"""A study that was changed: what was measured for the old one is never compared with the new."""

from __future__ import annotations

import json

import pytest

from contextcliff_dagster.cli.commands.report import print_profiled
from contextcliff_dagster.contracts import EVAL_RECORDS, StoreError
from contextcliff_dagster.run.study import (
    Profiled,
    prepare_study,
    profile_study,
    read_profiled,
    rebuild_report,
)
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.tiny_study import TINY

pytestmark = pytest.mark.usefixtures("unrecorded")

SHORT, LONG = "reference-short", "reference-long"

WORDS = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
}
"""A tokenizer that counts words."""


def changed(study: Study, old: str, new: str) -> Study:
    """The study after somebody edited its file."""
    path = study._folder / "tiny.yaml"
    assert old in TINY
    path.write_text(TINY.replace(old, new), encoding="utf-8")
    return load_study(path)


def other_request(study: Study) -> Study:
    return changed(study, "max_output_tokens: 12", "max_output_tokens: 16")


def models(done: Profiled) -> list[str]:
    return [cliffs.model for cliffs in done.cliffs]


def files(store: Store, pattern: str) -> set[str]:
    """Models that have files of this name."""
    return {
        part.removeprefix("model=")
        for path in (store.root / "tiny").rglob(pattern)
        for part in path.parts
        if part.removeprefix("model=") in (SHORT, LONG)
    }


@pytest.mark.parametrize(
    "edit",
    [
        ("max_output_tokens: 12", "max_output_tokens: 16"),
        ("documents: 60", "documents: 60, seed: 5"),
    ],
    ids=["request", "sample"],
)
def test_answers_to_another_question_are_left_out_by_name(
    edit: tuple[str, str], measured: Study, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    done = profile_study(changed(measured, *edit), models=[SHORT])
    assert models(done) == [SHORT]
    [note] = done.notes
    assert note.startswith(f"Left out: {LONG}, which was measured in campaign ")
    assert f"`contextcliff profile tiny --model {LONG}` measures it again" in note
    assert files(store, "cliffs.json") == files(store, "eval_records.parquet") == {SHORT}
    page, machine = done.report.md.read_text(), json.loads(done.report.json.read_bytes())
    answers, _, notes = page.partition("## Warnings and notes")
    assert LONG not in answers
    assert notes.count(LONG) == 2
    assert [result["model"] for result in machine["models"]] == [SHORT]
    assert machine["notes"] == [note]
    print_profiled(done, as_json=False)
    output = capsys.readouterr().out
    assert note in output.splitlines()
    assert LONG not in output.replace(note, "")


def test_the_command_in_the_note_measures_them_again(measured: Study) -> None:
    edited = other_request(measured)
    profile_study(edited, models=[SHORT])
    done = profile_study(edited, models=[LONG])
    assert done.calls[LONG].sent == 12
    assert set(models(done)) == {SHORT, LONG}
    assert {c.provenance["hashes"]["recipe"] for c in done.cliffs} == {edited.recipe().hash}
    assert done.notes == ()
    assert "Warnings and notes" not in done.report.md.read_text()


def test_an_edit_taken_back_brings_everybody_back_without_a_call(measured: Study) -> None:
    before = read_profiled(measured, Store.default(), rebuild_report(measured).campaign, {})
    profile_study(other_request(measured))
    back = profile_study(measured, models=[SHORT])
    assert back.calls[SHORT].sent == 0
    assert models(back) == [SHORT, LONG]
    assert [c.bins for c in back.cliffs] == [c.bins for c in before.cliffs]
    assert back.notes == ()


def sample_lengths(study: Study) -> dict[tuple[str, str], int]:
    """(bin, example) -> tokens, as the frozen sample has them."""
    rows = prepare_study(study).manifest.examples.to_pylist()
    return {(row["bin"], row["example_id"]): row["length_tokens"] for row in rows}


def test_two_tokenizers_never_share_an_axis(measured: Study, store: Store) -> None:
    before = sample_lengths(measured)
    words = measured.folder / "words.json"
    words.write_text(json.dumps(WORDS), encoding="utf-8")
    edited = changed(measured, "tokenizer: reference", f"tokenizer: 'file:{words}'")
    done = profile_study(edited, models=[SHORT])
    lengths = sample_lengths(edited)
    assert not before.items() & lengths.items()
    rows = [
        row
        for path in (store.root / "tiny").rglob("eval_records.parquet")
        for row in read_table(path, EVAL_RECORDS).to_pylist()
    ]
    assert all(lengths[row["bin"], row["example_id"]] == row["length_tokens"] for row in rows)
    # The request is the same: what the other model answered counts at its new length.
    assert {c.model: c.n for c in done.cliffs} == {SHORT: 12, LONG: 12}
    assert {c.tokenizer for c in done.cliffs} == {edited.tokenizer}
    hashes = {c.provenance["hashes"]["manifest"] for c in done.cliffs}
    assert hashes == {prepare_study(edited).manifest.sha256}
    assert done.notes == ()


def test_a_bigger_sample_keeps_the_other_model(measured: Study) -> None:
    done = profile_study(measured.with_samples(6), models=[SHORT])
    assert {c.model: c.n for c in done.cliffs} == {SHORT: 18, LONG: 12}
    assert len({c.provenance["hashes"]["manifest"] for c in done.cliffs}) == 1
    assert done.notes == ()


def test_an_edited_study_has_no_report_before_it_is_measured(measured: Study, store: Store) -> None:
    edited = other_request(measured)
    with pytest.raises(StoreError, match="for its current sample and request"):
        rebuild_report(edited)
    # Nothing of the old one is gone: the edit may be taken back.
    assert files(store, "cliffs.json") == files(store, "eval_records.parquet") == {SHORT, LONG}
    assert models(rebuild_report(measured)) == [SHORT, LONG]
