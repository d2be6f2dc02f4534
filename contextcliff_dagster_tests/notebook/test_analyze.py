"""`analyze` from Python: the figures of the command line, whatever the columns come from."""

from __future__ import annotations

import decimal
import io
import json
import os
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster import analyze
from contextcliff_dagster.contracts import ContextCliffError, DataError
from contextcliff_dagster.contracts.results import Cliffs, to_json
from contextcliff_dagster.notebook.results import Result, Results
from contextcliff_dagster.store import read_result
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, ramp
from contextcliff_dagster_tests.support.records.profiles import schema
from contextcliff_dagster_tests.support.terminal import call

HOSTILE = '<img src=x onerror="alert(1)">&$x_1$'


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """Everything but when and of what file the result was made."""
    return {key: result[key] for key in result if key not in ("created_at", "provenance")}


def of_command_line(frame: pd.DataFrame, folder: Path, *options: str) -> dict[str, Any]:
    frame.to_csv(folder / "model.csv", index=False)
    ended = call("analyze", str(folder / "model.csv"), "--json", "-", *options)
    assert (ended.code, ended.err) == (0, "")
    result: dict[str, Any] = json.loads(ended.out)
    return result


@pytest.fixture(scope="module")
def records() -> pd.DataFrame:
    return plant(ramp(1_600), 1)


@pytest.fixture(scope="module")
def result(records: pd.DataFrame) -> Result:
    return analyze(records["length_tokens"], records["score"], window=8_192, quick=True)


@pytest.mark.parametrize("graded", [False, True])
def test_two_columns_give_what_the_command_line_gives(graded: bool, tmp_path: Path) -> None:
    rows = plant(ramp(1_600), 3, graded=graded)[["length_tokens", "score"]]
    found = analyze(rows["length_tokens"].to_list(), rows["score"].to_list())
    assert figures(found.to_dict()) == figures(of_command_line(rows, tmp_path))
    schema("cliffs").validate(found.to_dict())


def test_all_columns_and_options_give_what_the_command_line_gives(tmp_path: Path) -> None:
    rows = plant(ramp(2_000), 5, questions=2, replicates=2, graded=True)
    rows = rows[["length_tokens", "score", "document_id", "example_id", "replicate", "failure"]]
    rows["score"] = (rows["score"] * 100).round(1)
    overflow = rows["length_tokens"] > 5_000
    rows.loc[overflow, ["score", "failure"]] = [np.nan, "context_overflow"]
    found = analyze(
        rows["length_tokens"],
        rows["score"],
        rows["document_id"],
        examples=rows["example_id"],
        replicates=rows["replicate"],
        failures=rows["failure"],
        scale=100,
        tolerance=0.2,
        confidence=0.9,
        assumption="any",
        window=32_768,
    )
    options = "--scale 100 --tolerance 20% --confidence .9 --assumption any --window 32768"
    assert figures(found.to_dict()) == figures(of_command_line(rows, tmp_path, *options.split()))
    assert found.cliffs.missing.context_overflow == overflow.sum()


@examples(10)
@given(order=st.permutations(range(80)), named=st.booleans())
def test_the_order_of_the_answers_does_not_matter(order: list[int], named: bool) -> None:
    rows = plant(ramp(1_600), 2, per_bin=8)

    def found(rows: pd.DataFrame) -> dict[str, Any]:
        names = {"examples": rows["example_id"]} if named else {}
        documents = rows["document_id"] if named else None
        one = analyze(rows["length_tokens"], rows["score"], documents, quick=True, **names)
        return figures(one.to_dict())

    assert found(rows.iloc[order]) == found(rows)


class Column:
    """A column of a library that speaks Arrow's protocol alone, as Polars' do."""

    def __init__(self, values: list[Any]) -> None:
        self._array = pa.chunked_array([values])

    def __iter__(self) -> Any:
        raise AssertionError("read value by value")

    def __arrow_c_stream__(self, requested: Any = None) -> Any:
        return self._array.__arrow_c_stream__(requested)


@pytest.mark.parametrize(
    "of",
    [
        list, tuple, np.array, pa.array, Column, pd.Series, pd.Categorical,
        lambda values: pd.Series(values, dtype=object),
        lambda values: pd.Series(values, index=range(len(values), 0, -1)),
        lambda values: pa.chunked_array([values[:5], values[5:]]),
        lambda values: pa.array(values).dictionary_encode(),
        lambda values: (value for value in values),
        lambda values: np.ma.array(values, mask=[False] * len(values)),
        lambda values: [np.array(value)[()] for value in values],
    ],
)  # fmt: skip
def test_columns_of_any_library_are_read_alike(
    of: Any, records: pd.DataFrame, result: Result
) -> None:
    columns = [records[name].to_list() for name in ("length_tokens", "score", "document_id")]
    found = analyze(*map(of, columns), window=8_192, quick=True)
    expected = analyze(*columns, window=8_192, quick=True)
    assert figures(found.to_dict()) == figures(expected.to_dict())
    assert found.cliffs.n_documents == 200


def test_right_and_wrong_are_scores(records: pd.DataFrame, result: Result) -> None:
    right = records["score"] == 1
    for scores in (right, right.to_list(), right.astype("boolean"), right.to_numpy()):
        found = analyze(records["length_tokens"], scores, window=8_192, quick=True)
        assert figures(found.to_dict()) == figures(result.to_dict())
    found = analyze([decimal.Decimal(n) for n in range(100, 140)], [0.5] * 40, quick=True)
    assert found.cliffs.baseline.mean == 0.5


LENGTHS, SCORES = list(range(100, 140)), [1.0] * 40


@pytest.mark.parametrize(
    ("lengths", "scores", "more", "words"),
    [
        (LENGTHS[:-1], SCORES, {}, "lengths has 39 values and scores has 40"),
        (LENGTHS, SCORES, {"documents": ["a"]}, "documents has 1 values and scores has 40"),
        ([], [], {}, "lengths and scores are empty"),
        ([*LENGTHS[:-1], float("nan")], SCORES, {}, "lengths[39] is nan"),
        ([*LENGTHS[:-1], None], SCORES, {}, "lengths[39] is nan"),
        ([float("inf"), *LENGTHS[1:]], SCORES, {}, "lengths[0] is inf"),
        ([-5, 0, *LENGTHS[2:]], SCORES, {}, "lengths[0] (and 1 more) is -5"),
        ([1e13, *LENGTHS[1:]], SCORES, {}, "lengths[0] is 1e+13"),
        ([2**70, *LENGTHS[1:]], SCORES, {}, "lengths is not a column"),
        ([str(n) for n in LENGTHS], SCORES, {}, "lengths holds texts"),
        ([True] * 40, SCORES, {}, "lengths holds true and false"),
        (["a", *LENGTHS[1:]], SCORES, {}, "lengths is not a column of values of one kind"),
        ([[n] for n in LENGTHS], SCORES, {}, "lengths holds list"),
        (np.ones((20, 2)), SCORES, {}, "lengths is a 2-dimensional array"),
        (pd.DataFrame({"n": LENGTHS}), SCORES, {}, "lengths is a table"),
        ("lengths", SCORES, {}, "lengths is of type str"),
        (set(LENGTHS), SCORES, {}, "lengths is of type set"),
        (40, SCORES, {}, "lengths is of type int"),
        (None, SCORES, {}, "lengths is of type NoneType"),
        (pd.to_datetime(LENGTHS), SCORES, {}, "lengths holds timestamp"),
        (LENGTHS, [float("nan"), *SCORES[1:]], {}, "scores[0] is nan; give a score"),
        (LENGTHS, [float("inf"), *SCORES[1:]], {}, "scores[0] is inf"),
        (LENGTHS, [-0.5, *SCORES[1:]], {}, "scores[0] is -0.5; scores are 0 to 1."),
        (LENGTHS, [87.0, *SCORES[1:]], {}, "pass scale=100"),
        (LENGTHS, [870.0, *SCORES[1:]], {}, "pass the largest as scale="),
        (LENGTHS, [5.0, *SCORES[1:]], {"scale": 2}, "scores[0] is 5; scores are 0 to 2"),
        (LENGTHS, ["right"] * 40, {}, "scores holds texts"),
        ([100] * 40, SCORES, {}, "one length, 100 tokens"),
        (LENGTHS, [None] * 40, {"failures": ["transport_error"] * 40}, "has a score"),
        (LENGTHS, [None] * 40, {"failures": ["no idea"] * 40}, "scores[0] (and 39 more)"),
        (LENGTHS, SCORES, {"replicates": [0] * 40}, "give the examples"),
        (LENGTHS, SCORES, {"models": [None, *("m" * 39)]}, "models[0] is empty"),
        (LENGTHS, SCORES, {"models": [{}] * 40}, "models holds struct"),
        (LENGTHS, SCORES, {"tolerance": 3}, "'tolerance' is 3"),
        (LENGTHS, SCORES, {"tolerance": "30%"}, "tolerance is '30%'"),
        (LENGTHS, SCORES, {"confidence": float("nan")}, "confidence is nan"),
        (LENGTHS, SCORES, {"confidence": True}, "confidence is True"),
        (LENGTHS, SCORES, {"assumption": "none"}, "'assumption' is 'none'"),
        (LENGTHS, SCORES, {"scale": 0}, "scale is 0"),
        (LENGTHS, SCORES, {"scale": None}, "scale is None"),
        (LENGTHS, SCORES, {"window": 0}, "window is 0"),
        (LENGTHS, SCORES, {"window": 1.5}, "window is 1.5; give a whole number"),
        (LENGTHS, SCORES, {"window": True}, "window is True"),
        (LENGTHS, SCORES, {"name": ""}, "name is ''"),
        (LENGTHS, SCORES, {"name": None}, "name is None"),
    ],
)
def test_what_cannot_be_analysed_is_one_sentence(
    lengths: Any, scores: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError) as raised:
        analyze(lengths, scores, **more)
    assert isinstance(raised.value, ContextCliffError)
    sentence = str(raised.value)
    assert words in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("records", "line"),
    [
        (
            plant(ramp(1_600), 1),
            r"safe up to [\d,]+ tokens \(95%\); (cliff|(gradual )?decline) at [\d,]+ \[.*\]; n=200",
        ),
        (
            plant(flat(0.9), 1),
            r"safe up to 4,\d+ tokens \(95%\); no large drop found up to 5,\d+; n=200",
        ),
        (plant(flat(0.0), 1), r"no safe cap \(95%\); at the floor from the start; n=200"),
        (plant(flat(0.9), 1).head(9), r"no safe cap \(95%\); too few data; n=9"),
    ],
)
def test_a_result_is_one_line(records: pd.DataFrame, line: str) -> None:
    found = analyze(records["length_tokens"], records["score"], quick=True)
    assert re.fullmatch(line, repr(found)), repr(found)
    assert (found.safe_cap_tokens is None) == ("no safe cap" in repr(found))


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_verdict_cap_and_picture(records: pd.DataFrame) -> None:
    found = analyze(records["length_tokens"], records["score"], name=HOSTILE, quick=True)
    page = Tags(found._repr_html_())
    (image,) = (attributes for tag, attributes in page.tags if tag == "img")
    assert (image["src"] or "").startswith("data:image/png;base64,")
    assert repr(found) in (image["alt"] or "")
    shown = {"div", "p", "bdi", "img", "details", "summary", "ul", "li"}
    assert {tag for tag, _ in page.tags} <= shown
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert f"{HOSTILE}: safe up to {found.safe_cap_tokens:,} tokens" in page.text
    assert re.search("(Cliff|ecline) at", page.text)


def test_drawing_into_axes_of_ones_own(result: Result) -> None:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert result.plot(right) == (figure, right)
    assert not left.lines
    assert right.get_title().startswith("Safe context")
    result._repr_html_()
    assert not pyplot.get_fignums()
    own, axes = result.plot()
    try:
        assert pyplot.get_fignums() == [own.number]
        assert axes.figure is own
    finally:
        pyplot.close(own)


def test_a_figure_saves_itself_with_its_fonts_and_without_a_date(
    result: Result, tmp_path: Path
) -> None:
    from matplotlib import pyplot

    figure, _ = result.plot(width=3.3)
    assert figure.get_size_inches()[0] == 3.3
    copy = pickle.loads(pickle.dumps(figure))
    for opened in (figure, copy):
        pyplot.close(opened)
    kept = []
    for one, name in ((figure, "a.pdf"), (figure, "b.pdf"), (copy, "c.pdf"), (figure, "a.svg")):
        one.savefig(tmp_path / name)
        kept.append((tmp_path / name).read_bytes())
    assert kept[0] == kept[1]
    for pdf in kept[:3]:
        assert b"/CIDFontType2" in pdf
        assert b"CreationDate" not in pdf
    assert b"<text" in kept[3]
    out = io.BytesIO()
    figure.savefig(out, format="pdf", metadata={"Title": "mine"})
    assert b"mine" in out.getvalue()


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.csv", b"model,"),
        ("a.parquet", b"PAR1"), ("a.json", b"{"), ("a.html", b"<!doctype html>"), ("a.md", b"# "),
        ("A.PDF", b"%PDF"), ("deep/er/a.csv", b"model,"),
    ],
)  # fmt: skip
def test_one_file_of_the_kind_that_its_suffix_names(
    result: Result, tmp_path: Path, name: str, begins: bytes
) -> None:
    path = tmp_path / name
    assert result.save(path) == path
    content = path.read_bytes()
    assert content[:20].lower().startswith(begins.lower())
    result.save(tmp_path / "again" / name)
    assert (tmp_path / "again" / name).read_bytes() == content
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == {
        path, tmp_path / "again" / name
    }  # fmt: skip


def test_who_may_read_a_picture_is_left_to_the_umask(result: Result, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        result.save(tmp_path / "a.pdf")
        result.save(tmp_path / "a.csv")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.pdf", "a.csv")]
    assert modes == [0o644, 0o600]


def test_pages_as_one_file_lead_to_no_other(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "a.md")
    result.save(tmp_path / "a.html")
    text = (tmp_path / "a.md").read_text("utf-8")
    assert "report.png" not in text
    assert f"**{result.safe_cap_tokens:,} tokens**" in text
    assert result.methods()[:60] in text
    addresses = {attributes.get("src") for tag, attributes in
                 Tags((tmp_path / "a.html").read_text("utf-8")).tags if tag == "img"}  # fmt: skip
    assert all((address or "").startswith("data:") for address in addresses)


@pytest.mark.parametrize("name", ["a.docx", "report.v2", "a.pdf.gz", "there"])
def test_a_suffix_of_no_kind_is_refused_before_any_work(
    result: Result, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").write_text("a file")
    monkeypatch.setattr(type(result), "_each", lambda _: pytest.fail("worked"))
    with pytest.raises(DataError, match=r"none of \.png, \.pdf, \.svg, \.csv, .*\.md; choose"):
        result.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_folder_may_have_a_dot_in_its_name(result: Result, tmp_path: Path) -> None:
    result.save(f"{tmp_path}/report.v2/")
    result.save(tmp_path / "report.v2")  # it is there now
    assert (tmp_path / "report.v2" / "report.html").is_file()


def test_the_results_as_a_table_of_one_row_a_model(result: Result, tmp_path: Path) -> None:
    (row,) = result.to_frame().to_dict("records")
    cliffs = result.cliffs
    assert cliffs.cliff is not None
    assert (row["model"], row["verdict"], row["n"]) == (cliffs.model, cliffs.verdict, cliffs.n)
    assert row["safe_cap_tokens"] == result.safe_cap_tokens
    midpoint = (row["midpoint_tokens"], row["midpoint_ci_low"], row["midpoint_ci_high"])
    assert midpoint == (cliffs.cliff.location_tokens, cliffs.cliff.ci_low, cliffs.cliff.ci_high)
    base = (row["baseline"], row["baseline_ci_low"], row["baseline_ci_high"])
    assert base == (cliffs.baseline.mean, cliffs.baseline.ci_low, cliffs.baseline.ci_high)
    assert (row["drop"], row["tolerance"]) == (cliffs.cliff.drop, cliffs.tolerance)
    nothing = analyze([100, 200, 300], [1, 0, 1], name="few", quick=True)
    both = Results({"mine": result, "few": nothing})
    for name in ("a.csv", "a.parquet"):
        both.save(tmp_path / name)
    for read in (pd.read_csv(tmp_path / "a.csv"), pd.read_parquet(tmp_path / "a.parquet")):
        assert read["model"].to_list() == ["model", "few"]
        assert read["safe_cap_tokens"].isna().to_list() == [False, True]
        assert read["midpoint_tokens"].isna().to_list() == [False, True]
    whole = (tmp_path / "a.csv").read_text().splitlines()[1].split(",")
    assert str(result.safe_cap_tokens) in whole
    with pytest.raises(DataError, match="by is 'bins'; give 'model' or 'bin'"):
        result.to_frame(by="bins")  # type: ignore[arg-type]
    assert Results({}).to_frame().empty


def test_the_bins_as_a_table(result: Result) -> None:
    frame = result.to_frame(by="bin")
    assert frame.index.to_list() == [one.bin for one in result.cliffs.bins]
    assert frame["mean"].to_list() == [one.mean for one in result.cliffs.bins]
    assert frame["n"].sum() == result.cliffs.n


def test_a_result_is_written_and_read_again(result: Result, tmp_path: Path) -> None:
    files = result.save(tmp_path / "out")
    assert to_json(read_result(tmp_path / "out" / "cliffs.json", Cliffs)) == result.to_dict()
    assert files.png is not None
    assert files.png.read_bytes().startswith(b"\x89PNG")
    assert "Safe Cap:" in result.report()


def test_several_models_are_analysed_one_by_one(records: pd.DataFrame, tmp_path: Path) -> None:
    other = plant(flat(0.9), 1).assign(model="<b>flat")
    rows = pd.concat([records.assign(model="steep"), other]).sample(frac=1, random_state=0)
    found = analyze(rows["length_tokens"], rows["score"], models=rows["model"], quick=True)
    assert isinstance(found, Results)
    assert list(found) == ["<b>flat", "steep"]
    alone = analyze(records["length_tokens"], records["score"], name="steep", quick=True)
    assert figures(found["steep"].to_dict()) == figures(alone.to_dict())
    assert repr(found).splitlines()[1] == f"steep: {alone!r}"
    assert found.to_frame(by="bin").loc["steep"].equals(alone.to_frame(by="bin"))
    assert found.to_frame()["model"].to_list() == list(found)
    assert list(found.to_dict()) == list(found)
    assert "<b>flat" in Tags(found._repr_html_()).text
    assert "COMPARISON: Safe cap: <b>flat" in found.report()
    found.save(tmp_path)
    assert len(list(tmp_path.glob("*.cliffs.json"))) == 2


def test_an_error_is_both_a_value_error_and_ours() -> None:
    assert issubclass(DataError, ValueError)
    assert issubclass(DataError, ContextCliffError)
