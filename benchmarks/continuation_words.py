"""The familiar words of the cloze score: write the built-in list, and compare it with another.

    python benchmarks/continuation_words.py [--prose FOLDER] [--write] [--other LIST]

The list has 2,800 words: the everyday words of continuation_everyday_words.txt, which are ours,
then the most frequent words of the novels in data/prose (`make prose`) that at least five of six
novels use, that have at most two syllables, do not end in -ing, -ed or -ly, and are no names (most
of their occurrences are lower-case). `--write` writes it into the package.

With `--other`, a file with one word per line (the list of 3,000 words by Dale and Chall is part of
the package textstat): the words that both lists have, and the difference in the cloze score of
passages of 770 words.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill

from contextcliff_dagster.extensions.continuation.compat.metrics import (
    FAMILIAR_WORDS,
    read_word_list,
    shipped_words,
    syllables,
    text_metrics,
)

EVERYDAY = Path(__file__).with_name("continuation_everyday_words.txt")
MOST, LEAST_NOVELS, MOST_SYLLABLES = 2_800, 5, 2
PASSAGE, STEP = 770, 7_700
_WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)?")
_DERIVED = re.compile(r".+(?:ing|ly)|.{4,}ed")


def everyday_words() -> set[str]:
    """Return the words of `EVERYDAY`."""
    lines = EVERYDAY.read_text(encoding="utf-8").splitlines()
    return {word for line in lines if not line.startswith("#") for word in line.split()}


def made_list(novels: list[str]) -> list[str]:
    """Return the list made of the texts of ``novels``, sorted."""
    lower, total, novels_with = Counter[str](), Counter[str](), Counter[str]()
    for novel in novels:
        found = _WORD.findall(novel)
        words = Counter(word for word in found if word.islower())
        lower += words
        total += Counter(word.lower() for word in found)
        novels_with.update(words.keys())
    chosen = everyday_words() | {"i", "a"}
    for word, times in sorted(lower.items(), key=lambda item: (-item[1], item[0])):
        if len(chosen) == MOST:
            break
        is_base = syllables(word) <= MOST_SYLLABLES and not _DERIVED.fullmatch(word)
        is_common = novels_with[word] >= LEAST_NOVELS and 2 * times >= total[word]
        if is_base and is_common and len(word) > 1 and word.isalpha():
            chosen.add(word)
    return sorted(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prose", type=Path, default=Path("data/prose"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--other", type=Path)
    given = parser.parse_args()
    novels = [path.read_text(encoding="utf-8") for path in sorted(given.prose.glob("*.txt"))]
    if given.write:
        content = fill(" ".join(made_list(novels)), 100, break_on_hyphens=False)
        FAMILIAR_WORDS.write_text(content + "\n", encoding="utf-8")
    ours = shipped_words()
    print(f"built-in list: {len(ours):,} words")
    if given.other is None:
        return
    other = read_word_list(given.other)
    print(f"{given.other.name}: {len(other):,} words, {len(ours & other):,} of them in both")
    differences = []
    for novel in novels:
        words = novel.split()
        for start in range(0, len(words) - PASSAGE, STEP):
            passage = " ".join(words[start : start + PASSAGE])
            both = (text_metrics(passage, words_)["cloze_score"] for words_ in (ours, other))
            one, two = map(float, both)
            differences.append(one - two)
    print(
        f"cloze score of {len(differences)} passages, built-in less other: mean "
        f"{mean(differences):+.2f}, SD {stdev(differences):.2f}, from {min(differences):+.2f} to "
        f"{max(differences):+.2f}"
    )


if __name__ == "__main__":
    main()
