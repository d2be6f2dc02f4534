"""F1 of Chinese answers by the rules of LongBench, MLQA, SQuAD and this project.

    CONTEXTCLIFF_REAL_DATA=FOLDER python benchmarks/published_scores.py

The folder has 25 questions of LongBench's multifieldqa_zh and 12 articles of XQuAD in Chinese, as
published. Answers, from right to wrong, are made from the accepted ones and their documents. The
rules of LongBench (Bai et al. 2023) and MLQA (Lewis et al. 2020) are reimplemented from their
papers; LongBench's needs `jieba` (pip install jieba) and is skipped without it.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from scipy.stats import spearmanr

from contextcliff_dagster.scoring.normalize import token_f1

Rule = Callable[[str, str], float]
_JUNK = {c for c in map(chr, range(0x10000)) if unicodedata.category(c).startswith("P")}
_JUNK |= set(string.punctuation)


def f1(given: list[str], gold: list[str]) -> float:
    shared = sum((Counter(given) & Counter(gold)).values())
    return 2 * shared / (len(given) + len(gold)) if shared else 0.0


def bare(text: str) -> str:
    return "".join(c for c in text.lower() if c not in _JUNK)


def by_white_space(answer: str, gold: str) -> float:
    """Return F1 on SQuAD's tokens, as in this project's scorers of version 1."""
    return f1(bare(answer).split(), bare(gold).split())


def by_mlqa(answer: str, gold: str) -> float:
    split = [re.sub(r"([\u4e00-\u9fa5])", r" \1 ", bare(text)).split() for text in (answer, gold)]
    return f1(*split)


def by_this_project(answer: str, gold: str) -> float:
    return token_f1(answer, [gold])


def rules() -> dict[str, Rule]:
    known: dict[str, Rule] = {
        "white space (version 1)": by_white_space,
        "this project": by_this_project,
        "MLQA": by_mlqa,
    }
    try:
        import jieba
    except ImportError:
        print("LongBench's own rule is left out: jieba is not installed.")
        return known
    jieba.setLogLevel("ERROR")

    def words(text: str) -> list[str]:
        pieces = ("".join(bare(word).split()) for word in jieba.cut(text, cut_all=False))
        return [piece for piece in pieces if piece]

    return {**known, "LongBench (jieba)": lambda answer, gold: f1(words(answer), words(gold))}


def questions(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield (set, question, accepted answer, document)."""
    lines = (folder / "longbench-multifieldqa_zh.first25.jsonl").read_text(encoding="utf-8")
    for row in map(json.loads, lines.splitlines()):
        yield "multifieldqa_zh", row["input"], row["answers"][0], row["context"]
    xquad = json.loads((folder / "xquad.zh.first12articles.json").read_text(encoding="utf-8"))
    for article in xquad["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                gold = qa["answers"][0]["text"]
                yield "xquad.zh", qa["question"], gold, paragraph["context"]


def answers(question: str, gold: str, document: str, other: str) -> Iterator[tuple[str, str]]:
    """Return kind -> an answer as models give it."""
    short = gold.rstrip("。")
    yield "accepted, no full stop", short
    yield "accepted, first half", short[: (len(short) + 1) // 2]
    yield "in a sentence", f"根据文章，答案是{short}。"
    yield "question repeated", f"{question.rstrip('？?')}：{short}"
    near = max(re.split(r"(?<=[。！？\n])", document), key=lambda s: f1(list(bare(s)), list(short)))
    yield "sentence of the document", near.strip()
    yield "another question's answer", other


def main() -> None:
    folder = os.environ.get("CONTEXTCLIFF_REAL_DATA")
    if not folder:
        raise SystemExit("Set CONTEXTCLIFF_REAL_DATA to the folder of published excerpts.")
    scored: dict[str, dict[str, list[dict[str, float]]]] = {}
    by_name, rows = rules(), list(questions(Path(folder)))
    for i, (name, question, gold, document) in enumerate(rows):
        for kind, answer in answers(question, gold, document, rows[i - 1][2]):
            scores = {rule: score(answer, gold) for rule, score in by_name.items()}
            scored.setdefault(name, {}).setdefault(kind, []).append(scores)
    for name, kinds in scored.items():
        print(f"\n{name}: {len(next(iter(kinds.values())))} questions, mean F1")
        print(f"{'':28}" + "".join(f"{rule:>25}" for rule in by_name))
        everything = [scores for of_kind in kinds.values() for scores in of_kind]
        for kind, of_kind in [*kinds.items(), ("all", everything)]:
            means = [statistics.fmean(s[rule] for s in of_kind) for rule in by_name]
            print(f"{kind:28}" + "".join(f"{mean:25.3f}" for mean in means))
        for official in (rule for rule in by_name if rule in ("MLQA", "LongBench (jieba)")):
            for rule in ("white space (version 1)", "this project"):
                pairs = [(s[rule], s[official]) for s in everything]
                off = statistics.fmean(abs(a - b) for a, b in pairs)
                same = sum(abs(a - b) < 1e-9 for a, b in pairs) / len(pairs)
                r = spearmanr(*zip(*pairs, strict=True)).statistic
                print(
                    f"{rule} and {official}: equal {same:.1%}, mean |difference| {off:.3f}, "
                    f"rank correlation {r:.3f}"
                )


if __name__ == "__main__":
    main()
