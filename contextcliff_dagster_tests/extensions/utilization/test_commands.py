"""`contextcliff utilization`: from options to a study, its estimate, and its report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.extensions.utilization.commands import made_study
from contextcliff_dagster.step_progress import listened

SMALL = ("--benchmark", "ledger", "--scale", "1k", "--seeds", "2", "--tokenizer")
O200K = "tiktoken:o200k_base"
Capsys = pytest.CaptureFixture[str]


def run(*options: str) -> int:
    return main(["utilization", *SMALL, O200K, *options])


def test_options_are_keys_of_the_section() -> None:
    study = made_study(
        {
            "benchmarks": "ledger,network",
            "scales": "1k-4k",
            "formats": "structured,prose",
            "corruption": "0,5%:recomputed",
            "thought": "off,on",
            "seeds": 3,
            "tokenizer": O200K,
        },
        ("reference-short",),
    )
    section = study.sections["utilization"]
    assert section.benchmarks == ("warehouse", "network")
    assert section.scales == ("1k", "2k", "4k")
    assert section.formats == ("jsonl", "prose")
    assert [one.level for one in section.corruption] == ["0", "0.05 recomputed"]
    assert (section.thought, section.seeds) == (("off", "on"), 3)
    assert study.name.startswith("utilization-warehouse-network-1k-to-4k-")


def test_other_documents_are_another_study() -> None:
    first, *others = (
        made_study({"scales": "1k", **keys}, ("reference-short",)).name
        for keys in ({}, {"seeds": 9}, {"scales": "1.5k"}, {"order": "shuffled"})
    )
    assert len({first, *others}) == 4
    assert made_study({"scales": "1000"}, ("reference-long",)).name == first


def test_a_dry_run_prices_and_keeps_nothing(capsys: Capsys, contextcliff_home: Path) -> None:
    assert run("--model", "gpt-4o-mini", "--dry-run") == 0
    out = capsys.readouterr().out
    assert re.search(r"To measure: 16 calls, about 1[5-9],\d{3} tokens, about \$", out)
    assert not list(contextcliff_home.glob("utilization*"))


def test_a_dry_run_says_what_is_longer_than_the_window(
    capsys: Capsys, contextcliff_home: Path
) -> None:
    assert run("--model", "reference-short", "--dry-run", "--scale", "1k") == 0
    assert "Too long" not in capsys.readouterr().out
    assert run("--model", "reference-short", "--dry-run", "--scale", "16k") == 0
    out = capsys.readouterr().out
    assert "Too long for reference-short, so not sent: 16 calls" in out
    assert "Nothing to send" in out
    assert "in the ledger" not in out


def test_every_combination_is_refused_with_its_price(
    capsys: Capsys, contextcliff_home: Path
) -> None:
    arms = ("--order", "chronological,shuffled", "--thought", "off,on", "--factorial")
    assert run("--model", "gpt-4o-mini", *arms) == 2
    said = capsys.readouterr().err
    assert "--factorial measures all 4 combinations. To measure: 64 calls, about" in said
    assert "One change at a time: 48 calls, about" in said
    assert said.count("$") == 2
    assert not list(contextcliff_home.glob("utilization*"))
    assert run("--model", "gpt-4o-mini", *arms, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["calls"] == 64


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ("needs --model", "contextcliff models")),
        (("--model", "nosuch"), ("nosuch",)),
        (("--model", "reference-short", "--formats", "yaml"), ("--formats 'yaml'", "'jsonl'")),
        (("--model", "reference-short", "--scale", "20"), ("--scale", "'20' is out of range")),
        (("--model", "reference-short", "--scale", "200"), ("200 tokens", "out of reach")),
        (
            ("--model", "reference-short", "--tokenizer", "tiktoken:x"),
            ("tiktoken has no encoding 'x'",),
        ),
        (("--model", "gpt-4o-mini", "--budget-usd", "nan"), ("not an amount",)),
        (("--model", "reader-perfect", "--formats", "prose,prose"), ("--formats: ", "twice")),
    ],
)
def test_bad_input_is_one_sentence(
    options: Sequence[str], words: Sequence[str], capsys: Capsys, contextcliff_home: Path
) -> None:
    assert run(*options) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said


def test_a_price_above_the_threshold_is_confirmed_first(capsys: Capsys, monkeypatch: Any) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert run("--model", "gpt-4o-mini", "--seeds", "200", "--scale", "4k") == 2
    assert "This would cost about $" in capsys.readouterr().err


def test_no_model_is_no_study() -> None:
    with pytest.raises(StudyError, match="needs --model"):
        made_study({}, ())


@pytest.mark.parametrize(
    ("match", "fewest", "most"), [("content", 400, 700), ("tokens", 980, 1020)]
)
def test_tokens_of_both_formats_and_effects_of_arms_are_printed(
    match: str, fewest: int, most: int, capsys: Capsys, contextcliff_home: Path
) -> None:
    arms = ("--order", "chronological,shuffled", "--thought", "off,on")
    options = ("--benchmark", "constraint", "--seeds", "1", "--match", match, *arms)
    assert run("--model", "reader-perfect", "--yes", *options) == 0
    out = capsys.readouterr().out
    assert f"Mean tokens of a document, JSON lines / prose (match: {match})" in out
    structured, prose = re.findall(r"^1k +([\d,]+) / ([\d,]+)$", out, re.M)[0]
    assert int(structured.replace(",", "")) == pytest.approx(1000, rel=0.02)
    assert fewest <= int(prose.replace(",", "")) <= most
    effect = r"0\.00 \[-0\.\d\d, \+0\.\d\d\]$"
    assert re.search(rf"^- order, shuffled minus chronological: {effect}", out, re.M)
    assert re.search(rf"^- thought, on minus off: {effect}", out, re.M)


def test_progress_counts_documents_while_they_are_made(contextcliff_home: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    with listened(lambda *step: seen.append(step)):
        assert run("--model", "reader-perfect", "--yes") == 0
    made = [(done, total) for name, done, total in seen if name == "documents"]
    assert made[:3] == [(0, 2), (1, 2), (2, 2)]
    assert made[-1] == (2, 2)


def test_an_export_needs_no_model_and_calls_none(
    capsys: Capsys, tmp_path: Path, contextcliff_home: Path
) -> None:
    assert run("export", str(tmp_path / "made")) == 0
    assert "4 documents with 16 questions" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "made" / "verdicts.jsonl").open()]
    assert len(rows) == 16
    assert all(row["agrees"] for row in rows)
    assert not (contextcliff_home / "state.db").exists()
    assert run("--thought", "on", "export", "--json", str(tmp_path / "made")) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 4
    with (tmp_path / "made" / "questions.jsonl").open() as lines:
        assert "Reason step by step first" in lines.readline()


@pytest.mark.usefixtures("contextcliff_home")
def test_an_export_of_a_study_is_of_its_own_documents(capsys: Capsys, tmp_path: Path) -> None:
    made = str(tmp_path / "made")
    assert main(["utilization", "export", "--study", "quick", made]) == 2
    assert "Study 'quick' has no key `utilization`" in capsys.readouterr().err
    own = "name: own\ntokenizer: reference\nmodels: [reader-perfect]\nutilization: "
    file = tmp_path / "own.yaml"
    file.write_text(own + "{benchmarks: [network], scales: [1k], seeds: 1}\n")
    assert main(["utilization", "export", "--study", str(file), made]) == 0
    assert "2 documents with 8 questions" in capsys.readouterr().out
