"""Broken and hostile files cost a line each, and the good ones between them are read."""

from __future__ import annotations

import os
import socket
import struct
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from contextcliff_dagster.corpora.extraction import Extracted, Limits, Unusable, extract_all
from contextcliff_dagster.corpora.extraction.file_type import RefusedError, file_bytes
from contextcliff_dagster_tests.support.files import document_files as made
from contextcliff_dagster_tests.support.files.hostile_files import EXPECTED, write_hostile

LIMITS = Limits(seconds=2, memory_mb=300, unpacked_mb=30, file_mb=50)


def test_a_folder_of_hostile_files_is_read_to_its_end(tmp_path: Path) -> None:
    good = tmp_path / "good.txt"
    good.write_text("good")
    hostile = write_hostile(tmp_path)
    paths = [path for bad in hostile for path in (bad, good)]
    results = list(extract_all(paths, LIMITS))
    assert [result.path for result in results] == paths
    assert all(isinstance(result, Extracted) for result in results[1::2])
    outcomes = {
        result.path.name: result.reason if isinstance(result, Unusable) else result.text[:50]
        for result in results[::2]
    }
    wrong = {
        name: said
        for name, said in outcomes.items()
        if not any(said.startswith(expected) for expected in EXPECTED[name])
    }
    assert wrong == {}
    # The same again: neither the company of others nor the order changes a word.
    quick = [
        path for path in hostile[::-1] if not outcomes[path.name].startswith(("takes", "makes"))
    ]
    before = dict(zip(paths, results, strict=True))
    assert list(extract_all(quick, LIMITS)) == [before[path] for path in quick]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x")
    path.chmod(0)
    assert list(extract_all([path])) == [Unusable(path, "may not be read: permission denied")]


def test_what_is_no_file_is_never_waited_for(tmp_path: Path) -> None:
    pipe, bound, link, loop = (tmp_path / name for name in ("pipe", "socket", "link", "loop"))
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nothing")
    loop.symlink_to(loop)
    here = Path.cwd()
    os.chdir(tmp_path)  # names of sockets are short
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("socket")
    finally:
        os.chdir(here)
    with listener:
        paths = [pipe, bound, link, loop, Path("/dev/zero"), tmp_path, tmp_path / "gone"]
        results = list(extract_all(paths))
    assert [r.reason for r in results if isinstance(r, Unusable)] == [
        "is a named pipe",
        "is a socket",
        "is a symbolic link to nothing",
        "is a symbolic link that leads round in a circle",
        "is a device",
        "is a folder",
        "is no longer there",
    ]


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"x" * 3_000_000)
    read, times = os.read, iter((True,))

    def read_and_write(descriptor: int, n: int) -> bytes:
        data = read(descriptor, n)
        if next(times, False):
            with path.open(mode) as file:
                file.write(b"more")
        return data

    monkeypatch.setattr(os, "read", read_and_write)
    with pytest.raises(RefusedError, match="was written to while it was read"):
        file_bytes(bytes(path), Limits())


def test_a_file_that_outgrows_the_limit_while_it_is_read() -> None:
    # Of unknown length, as said by the system: 0 bytes.
    with pytest.raises(RefusedError, match="grew beyond the"):
        file_bytes(b"/proc/self/smaps", Limits(file_mb=0.0001))


def test_an_archive_that_lies_about_its_sizes(tmp_path: Path) -> None:
    honest = bytearray(made.docx(made.paragraph(made.run("word " * 100_000))))
    with zipfile.ZipFile(BytesIO(honest)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    less, more = (tmp_path / name for name in ("less.docx", "more.docx"))
    for path, lie in ((less, 10), (more, 2**31)):
        changed = bytes(honest).replace(struct.pack("<I", size), struct.pack("<I", lie))
        path.write_bytes(changed)
    first, second = extract_all([less, more], LIMITS)
    # The checksum is of the whole: a part of a text is never taken for it.
    assert first == Unusable(less, "is damaged: word/document.xml in it cannot be unpacked")
    assert isinstance(second, Extracted)
    assert len(second.text) == len("word ") * 100_000 + 1
