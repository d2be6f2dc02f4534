"""Fetching novels: apt-get and dpkg are scripts on the PATH, the R data is written here."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.contracts import CorpusError
from tools.fetch_prose import DEBIAN_PACKAGE, fetch_prose, read_novels

INSIDE = "usr/lib/R/site-library/janeaustenr/data"
LINES = {"emma": ["Emma", "", "A fine day — said she."], "persuasion": ["Persuasion"]}


def write_r_data(folder: Path, novels: dict[str, list[str]]) -> None:
    """As R keeps the data of a package that loads it when it is used."""
    from rdata.conversion import convert_python_to_r_data
    from rdata.unparser import unparse_data

    def serialised(value: Any) -> bytes:
        return bytes(unparse_data(convert_python_to_r_data(value)))

    folder.mkdir(parents=True)
    objects, index = b"", {}
    for name, lines in novels.items():
        data = serialised(np.array(lines))
        kept = struct.pack(">I", len(data)) + zlib.compress(data)
        index[name] = np.array([len(objects), len(kept)], np.int32)
        objects += kept
    (folder / "Rdata.rdb").write_bytes(objects)
    index_data = serialised({"variables": index, "references": {}, "compressed": np.array([True])})
    (folder / "Rdata.rdx").write_bytes(gzip.compress(index_data))


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but an apt-get and a dpkg that hand out ``package``."""
    programs, package = tmp_path / "bin", tmp_path / "package"
    programs.mkdir()
    write_r_data(package / INSIDE, LINES)
    scripts = {
        "apt-get": f"[ $1 = download ] && : > {DEBIAN_PACKAGE}_1_all.deb",
        "dpkg": f'[ $1 = -x ] && /bin/mkdir "$3" && /bin/cp -r {package}/. "$3"',
    }
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    texts = {name: ("\n".join(lines) + "\n").encode() for name, lines in LINES.items()}
    monkeypatch.setattr(
        "tools.fetch_prose.SHA256", {n: hashlib.sha256(t).hexdigest() for n, t in texts.items()}
    )
    return programs


def test_novels_are_fetched_once_and_again_where_one_is_damaged(
    debian: Path, tmp_path: Path
) -> None:
    shown: list[str] = []
    paths = fetch_prose(tmp_path / "prose", shown.append)
    assert {p.stem: p.read_text("utf-8").splitlines() for p in paths} == LINES
    assert "Fetching" in shown[0]
    shown.clear()
    assert fetch_prose(tmp_path / "prose", shown.append) == paths
    assert shown == [f"{tmp_path / 'prose'} has the novels."]
    paths[0].write_text("damaged", encoding="utf-8")
    fetch_prose(tmp_path / "prose", shown.append)
    assert paths[0].read_text("utf-8").splitlines() == LINES["emma"]


def test_another_text_is_not_kept(
    debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.fetch_prose.SHA256", {"emma": "0" * 64})
    with pytest.raises(CorpusError, match=r"emma of .* is not the expected text"):
        fetch_prose(tmp_path / "prose", lambda _: None)
    assert not (tmp_path / "prose").exists() or not list((tmp_path / "prose").iterdir())


def test_without_apt_or_with_a_package_that_is_not_there_it_is_one_sentence(
    debian: Path, tmp_path: Path
) -> None:
    (debian / "apt-get").write_text("#!/bin/sh\necho E: Unable >&2; exit 100\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"could not fetch .*E: Unable.*check the network"):
        fetch_prose(tmp_path / "prose", lambda _: None)
    (debian / "apt-get").unlink()
    with pytest.raises(CorpusError, match=r"needs apt-get"):
        fetch_prose(tmp_path / "prose", lambda _: None)


def test_damaged_r_data_is_one_sentence(tmp_path: Path) -> None:
    write_r_data(tmp_path / "data", LINES)
    (tmp_path / "data" / "Rdata.rdb").write_bytes(b"\0" * 20)
    with pytest.raises(CorpusError, match="R data"):
        read_novels(tmp_path / "data")
