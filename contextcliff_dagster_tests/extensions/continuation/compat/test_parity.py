"""Every figure of the reference implementation's sample, at 1e-9 where it is not rounded."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from contextcliff_dagster.analysis.statistics.rank_tests import holm
from contextcliff_dagster.extensions.continuation.compat.metrics import (
    COHERENCE_KEYS,
    METRICS,
    Embed,
    cloze_score,
    coherence,
    is_familiar,
    reading_level,
    sentences_of,
    syllables,
    text_metrics,
    words_of,
)
from contextcliff_dagster.extensions.continuation.compat.slicing import context_lengths, trimmed
from contextcliff_dagster.extensions.continuation.compat.statistics import (
    averaged,
    bootstrap_mean,
    composite_of,
    degradation_statistics,
    iqr_outliers,
    mann_whitney,
    rank_biserial,
    selected_rounds,
    spearman,
    trend_analysis,
)
from contextcliff_dagster_tests.support.requirements import published_file

LEAST_FIGURES = 800


@pytest.fixture(scope="module")
def sample() -> dict[str, Any]:
    return json.loads(published_file("continuation_parity.json").read_text(encoding="utf-8"))


def letters(sentences: Sequence[str]) -> list[list[float]]:
    """The stub embedder of the sample: how often each letter occurs."""
    return [
        [float(one.lower().count(c)) for c in "abcdefghijklmnopqrstuvwxyz"] for one in sentences
    ]


def differences(ours: Any, theirs: Any, place: str = "") -> tuple[int, list[str]]:
    """How many figures there are, and which of them differ."""
    if isinstance(theirs, Mapping):
        ours = {str(key): value for key, value in ours.items()}
        if ours.keys() != theirs.keys():
            return len(theirs), [f"{place}: keys {sorted(ours.keys() ^ theirs.keys())}"]
        pairs = [(ours[key], value, f"{place}/{key}") for key, value in theirs.items()]
    elif isinstance(theirs, list):
        ours = list(ours)
        if len(ours) != len(theirs):
            return len(theirs), [f"{place}: {len(ours)} of {len(theirs)}"]
        pairs = [(a, b, f"{place}/{k}") for k, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    else:
        number = isinstance(theirs, int | float) and not isinstance(theirs, bool)
        same = math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9) if number else ours == theirs
        return 1, [] if same else [f"{place}: {ours!r}, not {theirs!r}"]
    counted = [differences(*pair) for pair in pairs]
    return sum(n for n, _ in counted), [one for _, some in counted for one in some]


def figures_of_passages(sample: dict[str, Any]) -> tuple[Any, Any]:
    familiar = frozenset(sample["familiar_words"])
    ours, theirs = {}, {}
    for passage in sample["passages"]:
        text, name = passage["text"], passage["id"]
        words, sentences = words_of(text), sentences_of(text)
        unfamiliar = sum(not is_familiar(word, familiar) for word in words)
        counts = {
            "words": len(words),
            "distinct_words": len(set(words)),
            "unfamiliar_words": unfamiliar,
            "sentences": len(sentences),
            "sentence_word_counts": [len(one.split()) for one in sentences],
            "syllables_total": sum(map(syllables, words)),
        }
        metrics = text_metrics(text, familiar, letters)
        assert tuple(metrics) == METRICS == tuple(passage["metrics"])
        # Exactly: rounded figures are the same or not.
        assert metrics == passage["metrics"], name
        ours[name] = {"metrics": metrics, "counts": counts}
        theirs[name] = {key: passage[key] for key in ours[name]}
    return ours, theirs


def figures_of_coherence(sample: dict[str, Any]) -> tuple[Any, Any]:
    clients: dict[str, Embed | None] = {
        "none": None,
        "stub": letters,
        "returns one vector too few": lambda sentences: letters(sentences)[1:],
    }
    cases = sample["coherence_client_variants"]
    found = (coherence(sentences_of(one["text"]), clients[one["client"]]) for one in cases)
    ours = [{key: round(figures[key], 4) for key in COHERENCE_KEYS} for figures in found]
    return ours, [one["result"] for one in cases]


def figures_of_helpers(sample: dict[str, Any]) -> tuple[Any, Any]:
    helpers, slicing = sample["helper_cases"], sample["slicing"]
    levels, parts = helpers["reading_level_from_cloze"], helpers["cloze_from_parts"]
    lists, texts = slicing["context_length_lists"], slicing["trim_to_last_sentence"]
    ours = {
        "syllables": {word: syllables(word.strip("'")) for word in helpers["syllables"]},
        "levels": {cloze: reading_level(float(cloze)) for cloze in levels},
        "cloze": [cloze_score(p["pct_unfamiliar"], p["avg_sentence_length"]) for p in parts],
        "trimmed": [len(trimmed(one["text"])) for one in texts],
        "lengths": [
            context_lengths(one["max_context"], one["divisions"], one["start_context"])
            for one in lists
        ],
    }
    theirs = {
        "syllables": helpers["syllables"],
        "levels": levels,
        "cloze": [p["cloze"] for p in parts],
        "trimmed": [one["kept_characters"] for one in texts],
        "lengths": [one["context_lengths"] for one in lists],
    }
    return ours, theirs


def figures_of_unit_cases(sample: dict[str, Any]) -> tuple[Any, Any]:
    cases = sample["statistics"]["unit_cases"]
    iqr, tests = cases["detect_outliers_iqr"], cases["mann_whitney_and_rank_biserial"]
    corrections = cases["multiple_comparison_correction_alpha_0.05"]
    corrections = [one for one in corrections if one["method"] == "holm"]
    p_values = [holm(one["p_values"]) for one in corrections]
    composite = cases["composite_score"]
    theirs_by_ours = {
        "vocabulary_diversity": "vocab_diversity",
        "cloze_score": "cloze_score",
        "adjacent_coherence": "adjacent_coherence",
        "bigram_repetition_rate": "bigram_repetition",
    }
    ours = {
        "iqr": [iqr_outliers(one["values"], one["multiplier"]) for one in iqr],
        "composite": [
            composite_of({ours: one[theirs] for ours, theirs in theirs_by_ours.items()})
            for one in composite
        ],
        "adjusted": [[[p < 0.05 for p in row], row] for row in p_values],
        "spearman": [spearman(one["x"], one["y"]) for one in cases["spearman"]],
        "u": [mann_whitney(one["baseline"], one["test"]) for one in tests],
        "effect": [rank_biserial(one["baseline"], one["test"]) for one in tests],
        "bootstrap": [bootstrap_mean(one["data"]) for one in cases["bootstrap_mean_95"]],
    }
    theirs = {
        "iqr": [one["outlier_indices"] for one in iqr],
        "composite": [one["composite"] for one in composite],
        "adjusted": [one["result"] for one in corrections],
        "spearman": [one["result"] for one in cases["spearman"]],
        "u": [one["u_p"] for one in tests],
        "effect": [one["effect"] for one in tests],
        "bootstrap": [one["result"] for one in cases["bootstrap_mean_95"]],
    }
    return ours, theirs


def figures_of_datasets(sample: dict[str, Any]) -> tuple[Any, Any]:
    ours, theirs = {}, {}
    for one in sample["statistics"]["datasets"]:
        rounds = {int(size): some for size, some in one["rounds_by_context"].items()}
        means = {size: averaged(some) for size, some in rounds.items()}
        found = {
            "comprehensive": degradation_statistics(rounds),
            "averaged": means,
            "outliers": {size: selected_rounds(some) for size, some in rounds.items()},
            "trend_analysis": trend_analysis(means),
        }
        ours[one["name"]] = {key: value for key, value in found.items() if key in one}
        known = {key: value for key, value in one.items() if key in found}
        if "outliers" in known:
            of_size = known["outliers"].items()
            known["outliers"] = {s: o["indices_selected_for_replacement"] for s, o in of_size}
        theirs[one["name"]] = known
    return ours, theirs


PARTS = {
    "passages": figures_of_passages,
    "coherence": figures_of_coherence,
    "helpers": figures_of_helpers,
    "unit cases": figures_of_unit_cases,
    "datasets": figures_of_datasets,
}


@pytest.mark.parametrize("part", PARTS)
def test_every_figure_of_the_reference_agrees(part: str, sample: dict[str, Any]) -> None:
    _, wrong = differences(*PARTS[part](sample), part)
    assert not wrong


def test_at_least_800_figures_are_compared(sample: dict[str, Any]) -> None:
    counts = Counter({part: differences(*of(sample))[0] for part, of in PARTS.items()})
    print(dict(counts), counts.total())
    assert counts.total() >= LEAST_FIGURES
    assert all(counts.values())


def test_the_comparison_notices_one_digit(sample: dict[str, Any]) -> None:
    ours, theirs = figures_of_datasets(sample)
    first = next(iter(ours.values()))["averaged"]
    next(iter(first.values()))["cloze_score"] += 1e-4
    assert len(differences(ours, theirs)[1]) == 1
