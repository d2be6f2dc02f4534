"""The section on KV policies: what is planted is what it says, and never more."""

from __future__ import annotations

import io
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

from contextcliff_dagster.analysis.kv_family import KvFamily
from contextcliff_dagster.analysis.statistics.intervals import Crossing
from contextcliff_dagster.reporting.figures.comparison import loss_words, plot_kv_caps
from contextcliff_dagster.reporting.kv import cap_sentence, kv_sentences, policy_sections
from contextcliff_dagster.reporting.length_profile.page import OWN_BASELINE
from contextcliff_dagster.reporting.markdown import as_page
from contextcliff_dagster.reporting.report_files import write_report
from contextcliff_dagster_tests.support.records.kv_policies import planted_family
from contextcliff_dagster_tests.support.records.reports import results_of, sample


@pytest.fixture(scope="module")
def family() -> KvFamily:
    return planted_family()


@pytest.fixture(scope="module")
def page(family: KvFamily) -> str:
    return as_page(policy_sections([family]))


def test_what_keeps_everything_comes_first_and_the_control_last(family: KvFamily) -> None:
    assert [member.kv.label for member in family.members] == [
        "none",
        "knorm at 50%",
        "snapkv at 50%",
        "snapkv at 20%",
        "random at 50%",
    ]
    assert family.members[0].comparison is None
    assert all(member.comparison for member in family.members[1:])


def test_equal_policies_are_said_to_save_and_others_not(page: str, family: KvFamily) -> None:
    assert "snapkv at 50% saves 50% of the cache up to" in page
    assert (
        "Not shown to score as well as the whole cache at any length (mean drop below 0.1" in page
    )
    shift = {m.model: m.comparison.loss_shift for m in family.members if m.comparison}
    short = shift["m+snapkv@0.2"]
    assert short.ci_high is not None
    assert short.ci_high < 1
    assert shift["m+snapkv@0.5"].ratio == 1


def test_caps_are_about_the_baseline_of_the_whole_cache(page: str, family: KvFamily) -> None:
    members = {member.model: member for member in family.members}
    knorm = members["m+knorm@0.5"]
    assert knorm.comparison is not None
    assert knorm.comparison.caps.b_tokens is not None  # against its own baseline of 0.4
    assert knorm.cap_tokens is None
    assert knorm.loss.tokens == knorm.shortest_tokens
    whole, half, fifth = (members[f"m+{n}"] for n in ("none", "snapkv@0.5", "snapkv@0.2"))
    assert whole.cap_tokens == half.cap_tokens
    assert fifth.cap_tokens is not None
    assert fifth.cap_tokens < (fifth.loss.low or 0) < (whole.loss.low or 0)
    row = next(line for line in page.splitlines() if line.startswith("| `knorm at 50%` | 200"))
    assert row.split(" | ")[4] == "none"
    assert "these policies have longer caps: knorm at 50% (107 tokens), random at 50%" in page
    assert cap_sentence(knorm.comparison) == (
        "Against the baseline of the whole cache (1.00), no length is safe; against its own "
        "baseline the cap is 107 tokens."
    )
    assert half.comparison is not None
    assert "the safe cap is 654 tokens, the same as against its own" in str(
        cap_sentence(half.comparison)
    )
    assert kv_sentences(half.comparison)[0].startswith("At equal score")
    assert "; a drop of 30% from its own baseline is reached at " in half.comparison.sentence


def test_a_policy_no_better_than_the_control_is_named(page: str, family: KvFamily) -> None:
    assert "Better than random at the same budget: snapkv at 50%." in page
    assert "Not shown to be better than random at the same budget" in page
    against = {m.model: m.against_random for m in family.members}
    assert against["m+snapkv@0.2"] is None  # random was not measured at that budget
    better = {name: one.better for name, one in against.items() if one}
    assert better == {"m+knorm@0.5": False, "m+snapkv@0.5": True}


def test_the_page_has_memory_and_times_of_both(page: str) -> None:
    assert "Memory and times, medians of the documents" in page
    assert page.index("| `none` |") < page.index("| `knorm at 50%` | 4")
    assert "reading the document" in page


def test_the_picture_is_in_every_file_of_the_report(family: KvFamily, tmp_path: Path) -> None:
    name = "kv-policies-m.png"
    for count in (2, 7):  # seven models have a page each, and one over them
        folder = tmp_path / str(count)
        results = results_of(sample(f"m{i}")[0] for i in range(count))
        files = write_report(results, None, folder, title="t", sections=policy_sections([family]))
        assert Image.open(folder / name).size[0] == 1840
        assert f"]({name})" in files.md.read_text()
        html = unescape(files.html.read_text())
        assert "KV policies" in html[: html.index("<details>")]
        assert html.count("data:image/png;base64,") >= (1 if count == 2 else 2)
        # What a policy keeps of the whole cache's score comes before caps of its own.
        markdown = files.md.read_text()
        assert markdown.index("KV policies") < markdown.index(OWN_BASELINE)
        own = OWN_BASELINE if count > 2 else '<div class="cards">'
        assert html.index("KV policies") < html.index(own)


def test_the_same_family_gives_the_same_bytes(family: KvFamily) -> None:
    png = plot_kv_caps(family)
    assert png == plot_kv_caps(family)
    one = replace(family, members=[replace(m, cap_tokens=None) for m in family.members])
    assert Image.open(io.BytesIO(plot_kv_caps(one))).size == Image.open(io.BytesIO(png)).size
    assert plot_kv_caps(one) != png
    chosen = replace(family, members=[m for m in family.members if m.kv.policy != "random"])
    assert Image.open(io.BytesIO(plot_kv_caps(chosen))).size < Image.open(io.BytesIO(png)).size


def test_open_ends_are_shown_as_such() -> None:
    assert loss_words(Crossing(1536, 1024, None), 40) == "lost at 1.5k [1k, >]"
    assert loss_words(Crossing(None, 2048, None), 40) == "lost at 2k or later"
    assert loss_words(Crossing(None, None, None), 40) == "not lost"
    assert loss_words(Crossing(40, 40, 2048), 40) == "lost from the start"


def test_a_study_of_one_policy_has_no_section() -> None:
    assert policy_sections([]) == []
