"""`gallery`: exported studies become a site; what is no sound archive becomes one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from contextcliff_dagster_tests.support.measured_stores import copy_of_few
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an exported study and a file that is none."""
    folder = tmp_path_factory.mktemp("exported")
    store = copy_of_few(tmp_path_factory)
    assert call("export", "quick", str(folder / "quick.zip"), "--store", str(store)).code == 0
    (folder / "notes.txt").write_text("not an archive")
    return folder


def test_a_folder_of_exported_studies_becomes_a_site(
    archive: Path, tmp_path: Path, contextcliff_home: Path
) -> None:
    site = tmp_path / "site"
    ended = call("gallery", str(archive), "--output", str(site), "--json")
    assert ended.code == 0, ended.err
    made = json.loads(ended.out)
    results = json.loads((site / "gallery.json").read_text("utf-8"))["results"]
    assert made["results"] == len(results) > 0
    for row in results:
        report = site / row["report"]
        assert row["model"] in report.read_text("utf-8")
        assert report.with_suffix(".md").is_file()
        assert report.with_name("report.png").is_file()
    page = site / results[0]["report"]
    without = page.read_text("utf-8")
    assert not (contextcliff_home / "quick").exists()  # nothing enters the user's store
    # Made again over itself, with the answers; a report of before that is no more is gone.
    (site / "reports" / "of-before").mkdir()
    copy = tmp_path / "copy.zip"
    shutil.copy(archive / "quick.zip", copy)
    files = [str(archive / "quick.zip"), str(copy)]
    again = call("gallery", *files, "--output", str(site), "--with-answers")
    assert again.code == 0, again.err
    assert "copy.zip is identical to quick.zip" in again.err
    assert json.loads((site / "gallery.json").read_text("utf-8"))["results"] == results
    assert not (site / "reports" / "of-before").exists()
    assert len(list((site / "reports").iterdir())) == 1
    for text, has in ((without, False), (page.read_text("utf-8"), True)):
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
        assert data is not None
        assert bool(json.loads(data[1]).get("examples")) == has


def test_what_is_no_sound_archive_is_refused_and_nothing_is_written(
    archive: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    data = bytearray((archive / "quick.zip").read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(data)
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, word in (
        (damaged, "damaged"),
        (archive / "notes.txt", "contextcliff export"),
        (empty, "no exported study"),
        (tmp_path / "nowhere", "nowhere"),
    ):
        assert_one_sentence(call("gallery", str(path), "--output", str(site)), word)
        assert not site.exists()


def test_a_page_that_is_no_gallery_is_not_replaced(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    ended = call("gallery", str(archive), "--output", str(tmp_path))
    assert_one_sentence(ended, str(tmp_path), "not from the gallery")
    assert (tmp_path / "index.html").read_text() == "mine"
