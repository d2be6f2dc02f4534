"""Logs that are broken, hostile or large: one sentence each, and memory by the largest answer."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.corpora.readers import rows
from contextcliff_dagster.score_files import LogOptions, ScoreFileError, read_log
from contextcliff_dagster.score_files.logs import members as json_walk
from contextcliff_dagster.score_files.logs import members as zip_members
from contextcliff_dagster_tests.support.files.log_files import (
    deflated,
    inspect_head,
    inspect_sample,
    lm_eval_row,
    members_of,
    small_tokenizer,
    write_inspect,
    write_inspect_json,
    write_lines,
    write_zip,
    zstandard,
)


def refused(path: Path) -> str:
    with pytest.raises(ScoreFileError) as caught:
        read_log(path, LogOptions(open_tokenizer=small_tokenizer))
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def members() -> dict[str, bytes]:
    return members_of(inspect_head(), [inspect_sample(n) for n in range(1, 5)])


def test_zip_files_that_are_broken_or_of_something_else(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.eval", members())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is a broken zip file" in refused(path)
    assert "not a log of inspect_ai" in refused(write_zip(path, {"word/document.xml": b"<x/>"}))
    assert "its checksum does not match" in refused(write_zip(path, members(), crc=1))
    assert "damaged" in refused(write_zip(path, members(), deflated, crc=1))
    assert "encrypted" in refused(write_zip(path, members(), flags=1))
    assert "method 99" in refused(write_zip(path, members(), lambda content: (99, content)))
    spoiled = {**members(), "samples/3_epoch_1.json": b'{"id": 3'}
    assert "damaged in samples/3_epoch_1.json (it is not JSON)" in refused(write_zip(path, spoiled))


@pytest.mark.parametrize("pack", [zstandard, deflated])
@pytest.mark.parametrize("declared", [None, 100])
def test_a_zip_bomb_is_stopped_whatever_it_declares(
    pack: Any, declared: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_members, "MOST_BYTES", 1 << 16)
    bomb = {"header.json": b" " * (1 << 22)}
    path = write_zip(tmp_path / "a.eval", bomb, pack, declared=declared)
    assert path.stat().st_size < 1 << 14
    assert any(word in refused(path) for word in ("unpacks to more than", "damaged"))


def test_many_members_have_a_limit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_members, "MOST_BYTES_IN_ALL", 1 << 10)
    assert "which no log does" in refused(write_zip(tmp_path / "a.eval", members()))


def test_json_logs_that_were_cut_off_or_hold_something_endless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_inspect_json(tmp_path / "a.json", [inspect_sample(n) for n in range(1, 5)])
    whole = path.read_text("utf-8")
    path.write_text(whole[: len(whole) * 2 // 3], "utf-8")
    assert "was cut off" in refused(path)
    path.write_text(whole.replace('"target": "3",', '"target": 3 4,'), "utf-8")
    assert "is not JSON" in refused(path)
    lines = write_lines(tmp_path / "a.jsonl", [lm_eval_row(1)])
    with lines.open("a") as file:
        file.write('{"doc_id": 2,\n')
    assert "is not JSON" in refused(lines)
    monkeypatch.setattr(json_walk, "MOST_BYTES", 1 << 12)
    monkeypatch.setattr(rows, "_CHUNK", 1 << 10)
    monkeypatch.setattr(rows, "_READ_AHEAD", 1 << 10)
    endless = inspect_sample(1, input="x" * (1 << 16))
    assert "holds a value of more than" in refused(write_inspect_json(path, [endless]))
    with lines.open("a") as file:
        file.write("x" * (1 << 16))
    lines.write_text(lines.read_text().split("\n")[0] + "\n" + '{"x": "' + "x" * (1 << 16))
    assert "holds a value of more than" in refused(lines)


def test_empty_logs_and_logs_without_a_score(tmp_path: Path) -> None:
    assert "holds no answers" in refused(write_inspect(tmp_path / "a.eval", []))
    assert "holds no answers" in refused(write_inspect_json(tmp_path / "a.json", []))
    bare = [inspect_sample(n, scores=None, target=None) for n in (1, 2)]
    assert "no answer of this inspect_ai log has both" in refused(
        write_inspect(tmp_path / "b.eval", bare)
    )
    cause = {"message": "RateLimitError('no more of sk-123')"}
    failed = [inspect_sample(n, error=cause) for n in (1, 2)]
    ended = "2 with an error (RateLimitError)"
    assert f"can be used ({ended})" in refused(write_inspect(tmp_path / "c.eval", failed))
    trace = 'File "a.py"\n    raise\nValueError: sk-1\n\nopenai.APITimeoutError: Timed\nout.\n'
    unnamed = [
        inspect_sample(1, error={"message": "Timed out.", "traceback": trace}),
        inspect_sample(2, error={"message": "boom", "traceback": "t"}),
    ]
    counts = "1 with an error (openai.APITimeoutError), 1 with an error"
    assert f"can be used ({counts})" in refused(write_inspect(tmp_path / "f.eval", unnamed))
    # Without scores it is the errors that are named, not the scores that are missing.
    without = [{**one, "scores": None, "output": {}} for one in failed]
    assert f"can be used ({ended})" in refused(write_inspect(tmp_path / "d.eval", without))
    some = [*without, inspect_sample(3, scores=None, target=None)]
    assert f"(of 3 answers, left out: {ended})" in refused(write_inspect(tmp_path / "e.eval", some))


def test_memory_follows_the_largest_sample_and_not_the_log(tmp_path: Path) -> None:
    samples = [inspect_sample(n, transcript="y" * 200_000) for n in range(1, 61)]
    path = write_inspect_json(tmp_path / "a.json", samples)
    assert path.stat().st_size > 12_000_000
    for log in (path, write_inspect(tmp_path / "a.eval", samples)):
        read_log(log, LogOptions())  # what is imported on the way is not the log's
        tracemalloc.start()
        try:
            read_log(log, LogOptions())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    value=st.dictionaries(st.text(max_size=4), _json, max_size=5),
    indent=st.sampled_from([None, 1]),
    escaped=st.booleans(),
)
def test_walking_an_object_gives_its_members_piece_by_piece(
    value: dict[str, Any], indent: int | None, escaped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_CHUNK", 3)
    monkeypatch.setattr(rows, "_READ_AHEAD", 3)
    content = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    monkeypatch.setattr(json_walk, "opened", lambda path: io.BytesIO(content))
    lists = [name for name in value if isinstance(value[name], list)]
    found: dict[str, Any] = {name: [] for name in lists}
    for name, item in json_walk.walk(Path("a"), *lists):
        if name in found and name in lists:
            found[name].append(item)
        else:
            found[name] = item
    assert found == value
