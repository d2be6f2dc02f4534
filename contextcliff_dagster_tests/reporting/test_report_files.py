"""The files of a report: complete, valid, the same every time, free of secrets, all or nothing."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import LengthBin, Verdict
from contextcliff_dagster.contracts.results import ResultError, to_json
from contextcliff_dagster.redaction import secrets_of, without_secrets
from contextcliff_dagster.reporting.figures.report_figure import plot_report
from contextcliff_dagster.reporting.length_profile import page
from contextcliff_dagster.reporting.length_profile.tables import zone_sections
from contextcliff_dagster.reporting.report_files import machine_report, write_report
from contextcliff_dagster.reporting.sections import Paragraph, Section
from contextcliff_dagster.reporting.terminal import comparison_line, risk_report
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.reports import (
    page_of,
    result_of,
    results_of,
    sample,
    sample_pair,
)


def schema() -> dict[str, Any]:
    text = resources.files("contextcliff_dagster").joinpath("schemas/cliffs.schema.json")
    result: dict[str, Any] = json.loads(text.read_text(encoding="utf-8"))
    return result


def test_our_samples_keep_the_contract() -> None:
    for cliffs in sample_pair()[0]:
        jsonschema.validate(cliffs, schema())


def test_the_page_its_pictures_and_the_numbers_and_nothing_else(tmp_path: Path) -> None:
    cliffs, records = sample_pair()
    files = write_report(results_of(cliffs), records, tmp_path / "new", title="Reference")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "report.html",
        "report.json",
        "report.md",
        "report.png",
        "sensitivity.png",
    ]
    assert "](report.png)" in files.md.read_text(encoding="utf-8")


def test_a_figure_of_the_page_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = page.Picture("own.png", "What it shows", lambda results: b"of %d" % len(results))
    monkeypatch.setattr(page, "PARTS", (*page.PARTS, page.Part(page.CERTAINTY, zone_sections, own)))
    files = write_report(results_of(sample_pair()[0]), None, tmp_path, title="t")
    assert (tmp_path / "own.png").read_bytes() == b"of 2"
    assert files.html.read_text("utf-8").count('<img alt="What it shows" src="data:') == 1


def test_same_input_same_bytes(tmp_path: Path) -> None:
    cliffs, records = sample_pair()
    first = [p.read_bytes() for p in write_report(results_of(cliffs), records, tmp_path, title="t")]
    again = [p.read_bytes() for p in write_report(results_of(cliffs), records, tmp_path, title="t")]
    assert first == again


def test_the_machine_report_carries_every_result_and_the_map_to_tokens() -> None:
    cliffs, _ = sample_pair()
    report = machine_report(results_of(cliffs), title="t", notes=["n"])
    assert report["models"] == to_json(results_of(cliffs))
    for result, quantiles in zip(cliffs, report["quantile_to_tokens"], strict=True):
        jsonschema.validate(result, schema())
        assert quantiles["model"] == result["model"]
        for b, q in zip(result["bins"], quantiles["bins"], strict=True):
            assert q["bin"] == b["bin"]
            assert q["token_range"] == [b["edge_low"], b["edge_high"]]
            assert q["n_samples"] == b["n"]
            assert q["min_median_max_tokens"] == [
                b["min_tokens"],
                b["median_tokens"],
                b["max_tokens"],
            ]
    assert report["versions"]["matplotlib"]
    assert report["created_at"] == cliffs[0]["created_at"]


def test_what_is_not_a_number_becomes_null(tmp_path: Path) -> None:
    cliffs, records = sample()
    result = result_of(cliffs)
    odd = replace(result.bins[0], mean=float("nan"), sd=np.float64("inf"), n=np.int64(20))  # type: ignore[arg-type]
    result = replace(result, bins=[odd, *result.bins[1:]])
    files = write_report([result], records, tmp_path, title="t")
    bins = json.loads(files.json.read_text(encoding="utf-8"))["models"][0]["bins"]
    assert bins[0]["mean"] is None
    assert bins[0]["sd"] is None
    assert bins[0]["n"] == 20
    assert not re.search(r"\b(nan|inf)\b", files.md.read_text(encoding="utf-8"))


def test_no_secret_reaches_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "open|sesame*1234")
    cliffs, records = sample("model at open|sesame*1234")
    records["model"] = cliffs["model"]
    cliffs["warnings"] = ["the key is open|sesame*1234", "Bearer abcdefgh12345678"]
    cliffs["provenance"]["engine"] = {
        "base_url": "https://user:hunter2hunter2@host/v1?api_key=abc123",
        "api_key": "plainly",
        "api_key_env": "SOME_PROVIDER_API_KEY",
        "note": "sk-abcdefghijklmnop1234",
    }
    files = write_report(
        results_of([cliffs]), records, tmp_path, title="open|sesame*1234", notes=["sk-" + "a" * 20]
    )
    text = "".join(f.read_text("utf-8") for f in (files.md, files.json, files.html))
    for secret in ("sesame", "abcdefgh", "hunter2", "abc123", "plainly", "aaaaaa"):
        assert secret not in text
    assert "SOME_PROVIDER_API_KEY" in text  # the name of a variable is no secret
    assert "382" in text


@pytest.mark.parametrize(
    "path", ["/home/jo doe/secret/scores.csv", r"C:\Users\jo\secret\scores.csv", "/srv/secret/x/"]
)
def test_no_absolute_path_of_this_machine_reaches_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("HOME", "/home/jo doe")
    cliffs, records = sample(f"{path}model.gguf")
    records["model"] = cliffs["model"]
    cliffs["warnings"] = [f"Read from {path} and from {tmp_path / 'deep' / 'x'}.", f"in ({path})"]
    cliffs["safe_cap_reason"] = f"Nothing in '{path}' is longer"
    cliffs["provenance"]["identity"] = {
        "base_url": "http://127.0.0.1:8000/v1/models",
        "model": f"file://{path}",
        path: 1,
    }
    own = Section("Own", [Paragraph(f"at {path}")])
    files = write_report(
        results_of([cliffs]), records, tmp_path, title=path, notes=[f"of {path}"], sections=[own]
    )
    for file in (files.md, files.json, files.html):
        text = file.read_text("utf-8")
        for part in ("jo doe", "/secret", "\\secret", "Users", str(tmp_path)):
            assert part not in text, file.name
    assert "http://127.0.0.1:8000/v1/models" in files.json.read_text("utf-8")


def test_ordinary_words_are_not_taken_for_secrets() -> None:
    cliffs, _ = sample()
    assert without_secrets(cliffs, secrets_of({"PATH": "/usr/bin", "TOKENIZERS_X": "lookup"})) == (
        cliffs
    )


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _paths(item, (*at, key))
        else:
            yield (*at, key)


WHOLE, RECORDS = sample(per_bin=3, bins=4)
WHOLE["curve"] = WHOLE["curve"][::20]
GONE = object()


def odd(value: Any) -> list[Any]:
    """Nothing, null, empty, or extreme: what a writer of the right types could still write."""
    if isinstance(value, str):
        return [GONE, None, ""]
    if isinstance(value, dict | list):
        return [GONE, None, type(value)()]
    return [GONE, None, 0, -1, 10**12, float("nan")]


def changed(cliffs: Any, path: tuple[Any, ...], value: Any) -> Any:
    """``cliffs`` with ``value`` at ``path``, or without it."""
    key, *rest = path
    copied = copy.copy(cliffs)
    if rest:
        copied[key] = changed(cliffs[key], tuple(rest), value)
    elif value is not GONE:
        copied[key] = value
    elif isinstance(copied, dict):
        del copied[key]
    return copied


@cache
def allowed() -> list[tuple[tuple[Any, ...], Any]]:
    """Of all such changes those that the contract allows; the reader refuses the others."""
    kept = []
    for path in sorted(_paths(WHOLE), key=str):
        at = WHOLE
        for key in path:
            at = at[key]
        for value in odd(at):
            try:
                result_of(changed(WHOLE, path, value))
            except ResultError:
                continue
            kept.append((path, value))
    return kept


@st.composite
def lacking(draw: st.DrawFn) -> dict[str, Any]:
    """A result with fields nulled, removed or extreme: as much as the contract ever allows."""
    cliffs = changed(WHOLE, ("verdict",), draw(st.sampled_from(list(Verdict))).value)
    for path, value in draw(st.lists(st.sampled_from(allowed()), max_size=25)):
        try:
            cliffs = changed(cliffs, path, value)
        except (KeyError, IndexError, TypeError):
            continue
    return cliffs


def test_most_of_a_result_may_be_null_or_extreme() -> None:
    assert len(allowed()) > 150


@given(lacking(), lacking())
@examples(200)
def test_words_never_fail_and_never_print_a_raw_null(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    both = results_of([one, two])
    texts = [risk_report(both[0]), comparison_line(both), page_of(both)]
    json.dumps(machine_report(both, title="t"), allow_nan=False)
    for text in texts:
        assert not re.search(r"\b(nan|inf)\b|\bNone [^a-z]|None[,;|)]", text)
    assert "\n\nFAILURE RISK REPORT\n-------------------\n" in texts[0]
    assert "\n" not in texts[1]


@given(lacking(), st.booleans())
@examples(6)
def test_pictures_never_fail(one: dict[str, Any], with_records: bool) -> None:
    picture = plot_report(results_of([one, WHOLE]), RECORDS if with_records else None)
    assert picture[:4] == b"\x89PNG"


def test_a_real_profile_goes_through_every_door(tmp_path: Path) -> None:
    from contextcliff_dagster.analysis.bin_statistics import ProfileContext
    from contextcliff_dagster.analysis.profile import profile_model
    from contextcliff_dagster.analysis.records import AnalysisSettings

    made, records = sample_pair()
    results = []
    for cliffs in made:
        bins = [
            LengthBin(
                b["bin"], b["edge_low"], b["edge_high"], b["min_tokens"], b["median_tokens"],
                b["max_tokens"], b["n"], b["n_documents"],
            )
            for b in cliffs["bins"]
        ]  # fmt: skip
        context = ProfileContext(model=cliffs["model"], window_tokens=8192, score_name="em")
        mine = records[records["model"] == cliffs["model"]]
        results.append(profile_model(mine, bins, AnalysisSettings(), context).cliffs)
    files = write_report(results, records, tmp_path, title="Real")
    short, long = (r.safe_cap_tokens for r in results)
    assert short is not None
    assert long is not None
    assert short < long
    text = files.md.read_text(encoding="utf-8")
    assert f"**{short:,} tokens**" in text
    assert f"Hard cap inference context at {long:,} tokens." in risk_report(results[1])
    for result in results:
        jsonschema.validate(to_json(result), schema())
