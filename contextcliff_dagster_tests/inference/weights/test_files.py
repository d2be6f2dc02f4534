"""Weights on this machine: found, told apart, read as far as they describe themselves."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference import weights as files
from contextcliff_dagster.inference.engines.llamacpp import weights_file
from contextcliff_dagster.inference.engines.transformers import model_path
from contextcliff_dagster.inference.models.models_file import ModelEntry, load_models
from contextcliff_dagster.inference.weights import (
    file_sha256,
    find_weights,
    gguf_header,
    gguf_numbers,
    gguf_sha256,
    installed_version,
    trained_window,
)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(entries: dict[str, str | int], *tensors: tuple[int, ...]) -> bytes:
    """A header as llama.cpp writes it, with arrays of numbers, texts and arrays in between.

    ``tensors``: shapes of those that it describes.
    """
    numbers = struct.pack("<IQ3i", 5, 3, -1, 0, 1)
    words = struct.pack("<IQ", 8, 2) + text("a") + text("bc")
    arrays = [numbers, words, struct.pack("<IQ", 9, 2) + numbers + words]
    body = b"".join(text(f"array.{n}") + struct.pack("<I", 9) + a for n, a in enumerate(arrays))
    for key, value in entries.items():
        kind, data = (8, text(value)) if isinstance(value, str) else (4, struct.pack("<I", value))
        body += text(key) + struct.pack("<I", kind) + data
    for shape in tensors:
        body += text("t") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 3, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries) + len(arrays)) + body


ENTRIES = {"general.architecture": "tiny", "tiny.context_length": 777}


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers(0, 2**32 - 1), max_size=5))
def test_a_header_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, str | int]
) -> None:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(gguf({**entries, **ENTRIES}))
    header = gguf_header(path)
    assert header == {**entries, **ENTRIES}
    assert trained_window(header) == 777


def test_the_numbers_of_all_tensors_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(ENTRIES, (32, 5), (7,)))
    assert gguf_header(path) == ENTRIES
    assert gguf_numbers(path) == 32 * 5 + 7
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(EngineError, match="is damaged"):
        gguf_numbers(path)


def test_a_cut_header_is_one_sentence(tmp_path: Path) -> None:
    whole = gguf(ENTRIES)
    for length in range(0, len(whole), 7):
        path = tmp_path / f"{length}.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(EngineError, match="is damaged or not a GGUF file"):
            gguf_header(path)


def entry(**values: object) -> ModelEntry:
    return ModelEntry.model_validate({"name": "m", "engine": "llamacpp", **values})


def test_a_bare_name_is_found_where_fetched_models_are_kept(
    contextcliff_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(
        "models:\n  bare: {engine: llamacpp, weights: m.gguf}\n"
        "  near: {engine: llamacpp, weights: ./sub/m.gguf}\n"
    )
    monkeypatch.chdir(tmp_path)
    found = load_models([tmp_path / "models.yaml"])
    with pytest.raises(EngineError, match=r"m\.gguf are neither here nor in"):
        find_weights(found["bare"])
    kept = contextcliff_home / "models" / "m.gguf"
    kept.parent.mkdir()
    kept.write_bytes(b"x")
    assert find_weights(found["bare"]) == kept
    with pytest.raises(EngineError, match="neither here"):
        find_weights(found["near"])
    weights = tmp_path / "sub" / "m.gguf"
    weights.parent.mkdir()
    weights.write_bytes(b"y")
    assert find_weights(found["near"]) == weights


def test_the_missing_local_model_says_how_to_fetch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "models_folder", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match="make local-model"):
        find_weights(entry(weights=files.LOCAL_MODEL_FILE))


def test_a_missing_library_names_the_extra() -> None:
    with pytest.raises(EngineError, match=r"contextcliff-dagster\[local\]"):
        installed_version("no-such-library", entry(weights="m.gguf"), "local")


def test_a_large_file_is_hashed_once_per_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_REMEMBERED_FROM_BYTES", 1)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one")
    first = file_sha256(path)
    files._sha256.cache_clear()  # another process

    hashed: list[Path] = []
    honest = files._hash
    monkeypatch.setattr(files, "_hash", lambda path: hashed.append(path) or honest(path))
    assert file_sha256(path) == first
    assert hashed == []
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert file_sha256(path) != first
    assert len(hashed) == 1


def test_every_part_of_a_model_in_parts_is_in_its_hash(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
    for part in parts:
        part.write_bytes(gguf(ENTRIES))
    whole = gguf_sha256(parts[0])
    assert whole != file_sha256(parts[0])
    for part in parts:
        kept = part.read_bytes()
        part.write_bytes(kept + b"x")
        assert gguf_sha256(parts[0]) != whole
        part.write_bytes(kept)
    assert gguf_sha256(parts[0]) == whole
    with pytest.raises(EngineError, match=r"give the first, m-00001-of-00003\.gguf"):
        gguf_sha256(parts[1])
    with pytest.raises(EngineError, match="but transformers reads only single files"):
        model_path(entry(engine="transformers", weights=str(parts[0])))
    parts[2].unlink()
    with pytest.raises(EngineError, match=r"m-00003-of-00003\.gguf is missing next to it"):
        weights_file(entry(weights=str(parts[0])))


def test_a_model_of_one_file_has_the_hash_of_that_file(tmp_path: Path) -> None:
    path = tmp_path / "m-1-of-2.gguf"
    path.write_bytes(b"x")
    assert gguf_sha256(path) == file_sha256(path)


def test_engines_in_process_want_weights_and_no_address(tmp_path: Path) -> None:
    from contextcliff_dagster.contracts import StudyError

    path = tmp_path / "models.yaml"
    for given_, says in (("", "needs `weights`"), ("weights: x, base_url: 'http://x'", "no `base")):
        path.write_text(f"models:\n  m: {{engine: llamacpp, {given_}}}\n")
        with pytest.raises(StudyError, match=says):
            load_models([path])
        os.utime(path, ns=(1, 1))
