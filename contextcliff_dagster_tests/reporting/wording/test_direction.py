"""Names written from right to left reorder nothing next to them, in pages and terminals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.cli.display.output import print_table
from contextcliff_dagster.reporting.markdown import code, escaped
from contextcliff_dagster.reporting.terminal import comparison_line, risk_report
from contextcliff_dagster.reporting.wording import columns_of, isolated, isolated_whole, padded
from contextcliff_dagster_tests.support.records.reports import page_of, results_of, sample_pair

OPEN, SHUT = "\u2068", "\u2069"
ARABIC, HEBREW = "\u0646\u0645\u0648\u0630\u062c", "\u05de\u05d5\u05d3\u05dc"
LETTERS = st.text(st.sampled_from([*ARABIC, *HEBREW, "a", "1", " ", "-", "\u6f22", "\n"]))


@given(LETTERS)
def test_only_isolates_are_added_and_they_close(text: str) -> None:
    for marked in (isolated(text), isolated_whole(text)):
        assert marked.replace(OPEN, "").replace(SHUT, "") == text
        assert columns_of(marked) == columns_of(text)
        depth = 0
        for character in marked:
            depth += (character == OPEN) - (character == SHUT)
            assert depth in (0, 1)
            assert depth or character < "\u0590" or character == "\u6f22" or character == SHUT
        assert depth == 0


def test_the_pages_isolate_a_model_and_a_study() -> None:
    result = results_of(sample_pair()[0])[0]
    named = [replace(result, model=f"{ARABIC}-3", task=HEBREW)]
    page = page_of(named, title=f"Study {HEBREW} 7")
    assert page.startswith(f"# Study {OPEN}{HEBREW}{SHUT} 7\n")
    assert f"{OPEN}`{ARABIC}-3`{SHUT}" in page  # outside of what is copied
    for name in (ARABIC, HEBREW):
        assert page.count(name) == page.count(OPEN + name) + page.count(f"{OPEN}`{name}")
        assert f"{OPEN}{name}{SHUT}" in risk_report(named[0])
    assert f"{OPEN}{ARABIC}{SHUT}-3" in comparison_line([named[0], replace(named[0], model="b")])
    assert escaped("plain") == "plain"
    assert code("plain") == "`plain`"


def test_columns_of_a_table_are_aligned_whatever_the_script(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(ARABIC, 12), ("\u6f22\u5b57", 3), ("plain", 450)]
    print_table(("NAME", "N"), rows)
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{OPEN}{ARABIC}{SHUT}  12",
        "\u6f22\u5b57   3",
        "plain  450",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    print_table(("NAME",), [(f"{ARABIC} " * 30,)])
    cut = capsys.readouterr().out.splitlines()[1]
    assert columns_of(cut) == 60
    assert cut.endswith(f"…{SHUT}")


def test_padding_counts_columns() -> None:
    assert padded("\u6f22", 4) == "\u6f22  "
    assert padded(f"{OPEN}{HEBREW}{SHUT}", 5) == f"{OPEN}{HEBREW}{SHUT} "
