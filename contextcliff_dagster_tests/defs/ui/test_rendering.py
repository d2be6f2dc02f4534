"""Metadata of the UI stays small, however wide a study is, and says what it leaves out."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import dagster as dg
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from contextcliff_dagster.defs.ui.rendering import (
    PICTURE_LIMIT,
    TABLE_LIMIT,
    TEXT_LIMIT,
    long_text,
    pictures,
    table,
)
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.paths import DOCS

REPORT = DOCS / "img" / "report.png"
CELLS = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=30))


def size(value: dg.MetadataValue) -> int:
    return len(dg.serialize_value(value).encode())


def shown(*files: Path) -> dict[str, str]:
    return {name: str(value.value) for name, value in pictures(files).items()}


def noise(path: Path, pixels: int) -> Path:
    colours = np.random.default_rng(0).integers(0, 255, (pixels, pixels, 3), dtype=np.uint8)
    Image.fromarray(colours).save(path)
    return path


def test_a_report_s_picture_fits_and_is_legible() -> None:
    (markdown,) = shown(REPORT).values()
    assert len(markdown) <= PICTURE_LIMIT + 100
    data = markdown.partition("base64,")[2].removesuffix(")")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format == "WEBP"
    assert image.width >= 720
    small = Image.open(REPORT).convert("L").resize(image.size, Image.Resampling.LANCZOS)
    difference = np.abs(np.asarray(small, float) - np.asarray(image.convert("L"), float))
    assert difference.mean() < 4


def test_a_picture_that_cannot_be_small_is_named_instead(tmp_path: Path) -> None:
    path = noise(tmp_path / "report.png", 1_500)
    assert shown(path) == {"report": f"Too large for the event log: `{path}`"}


def test_two_pictures_share_the_room_and_one_has_it_alone(tmp_path: Path) -> None:
    small = [noise(tmp_path / f"{name}.png", 90) for name in "abc"]
    two = shown(*small)
    assert list(two) == ["a", "b"]
    assert sum(map(len, two.values())) <= PICTURE_LIMIT + 200
    assert list(shown(REPORT, noise(tmp_path / "large.png", 1_500))) == ["report"]
    assert "base64" in shown(REPORT, tmp_path / "large.png")["report"]


def test_no_picture_is_none() -> None:
    assert shown() == {}


def test_a_long_table_says_how_many_rows_are_missing() -> None:
    rows = [{"model": f"m{n}", "bin": "b00", "n": n} for n in range(5_000)]
    shown = table(rows)
    assert isinstance(shown, dg.TableMetadataValue)
    assert size(shown) < TABLE_LIMIT + 2_000
    *kept, last = shown.records
    assert [one.data for one in kept] == rows[: len(kept)]
    assert last.data["model"] == f"… and {5_000 - len(kept):,} more rows"


def test_a_short_table_has_all_rows() -> None:
    shown = table([{"model": "m"}] * 20)
    assert isinstance(shown, dg.TableMetadataValue)
    assert len(shown.records) == 20


@examples(30)
@given(st.lists(st.fixed_dictionaries({"a": CELLS, "b": CELLS}), min_size=1, max_size=400))
def test_a_table_never_grows_beyond_its_limit(rows: list[dict[str, object]]) -> None:
    assert size(table(rows)) < 1.5 * TABLE_LIMIT


def test_a_long_text_ends_at_a_line_and_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    text = "\n".join(f"Zeile {n}: ä" for n in range(3_000))
    shown = long_text(text, path).value
    assert isinstance(shown, str)
    kept, _, named = shown.partition("\n\n… ")
    assert named == f"The whole text: `{path}`"
    assert text.startswith(f"{kept}\n")
    assert len(kept.encode()) <= TEXT_LIMIT
    assert long_text("short", path).value == "short"
