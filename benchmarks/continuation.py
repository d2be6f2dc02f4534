"""Cost of measuring and judging continuations, and error rates of the conclusions.

    python benchmarks/continuation.py metrics [--generations 1000] [--jobs 2]
    python benchmarks/continuation.py collapse [--prose FOLDER ...] [--most 60]
    python benchmarks/continuation.py score [--passages 200]
    python benchmarks/continuation.py null|planted|analysis  (continuation_error_rates.py)
    python benchmarks/continuation.py coverage|arms          (continuation_coverage.py)
    python benchmarks/continuation.py recitation             (continuation_recitation.py)

"metrics": seconds for all metrics and collapse signs of `--generations` generations (1,024 tokens,
770 words each), without embeddings, with coherence (extra `embeddings`), and for the metrics of
compat. Texts are stretches of the novels in data/prose (`make prose`), else random words.

"collapse": how many human passages of 100, 200, 400 and 700 words (from the .txt files in the
folders; default data/prose) are called a collapse, by text, without and with the preceding passage
as the author's; their tags, and the most extreme value of each sign. Then how many of 200 passages
of the first folder are called a collapse after one was planted in their second half.

"score": scores of human passages against others of their text: mean, share below .05 and .25, and
largest distance from uniform (Kolmogorov-Smirnov), with 24 passages of one text and with half of
all; then the mean score of passages broken in their second half or throughout.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from continuation_coverage import show_arms, show_coverage
from continuation_error_rates import show_analysis, show_null, show_planted
from continuation_recitation import show_recitation

if TYPE_CHECKING:
    from contextcliff_dagster.extensions.continuation.prose.embedders import Embedder
    from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics

ROOT = Path(__file__).resolve().parents[1]
WORDS = 770


def generations(count: int) -> list[str]:
    """Return ``count`` texts of 770 words."""
    from tools.fetch_prose import prose_folder

    texts = [path.read_text(encoding="utf-8") for path in sorted(prose_folder().glob("*.txt"))]
    if not texts:
        rng = np.random.default_rng(0)
        letters = list("etaoinshrdlcumwfgypbvk")
        vocabulary = ["".join(rng.choice(letters, rng.integers(1, 10))) for _ in range(5_000)]
        drawn = rng.zipf(1.3, 400_000) % len(vocabulary)
        texts = [" ".join(vocabulary[i] + ". " * bool(i % 17 == 0) for i in drawn)]
        print("(random words: data/prose is empty)")
    words = [word for text in texts for word in text.split()]
    starts = np.linspace(0, len(words) - WORDS, count).astype(int)
    return [" ".join(words[start : start + WORDS]) for start in starts]


def prose_metrics(text: str) -> ProseMetrics:
    """Return the metrics of a text but its coherence."""
    from contextcliff_dagster.extensions.continuation.prose.metrics import metrics_of
    from contextcliff_dagster.extensions.continuation.prose.words import read_prose

    return metrics_of(read_prose(text))


def measure_text(text: str) -> tuple[float, float]:
    """Measure one text; return its number of words and the CPU seconds."""
    from contextcliff_dagster.extensions.continuation.prose.collapse import collapse_of

    start = time.process_time()
    words = prose_metrics(text).words or 0.0
    collapse_of(text)
    return words, time.process_time() - start


@lru_cache(maxsize=1)
def encoder() -> Embedder | None:
    from contextcliff_dagster.extensions.continuation.prose.embedders import local_embedder

    return local_embedder()


def measure_coherent(text: str) -> tuple[float, float]:
    """Measure one text like `measure_text`, including the coherence of its sentences."""
    from contextcliff_dagster.extensions.continuation.prose.embedders import coherence_of_texts
    from contextcliff_dagster.extensions.continuation.prose.words import read_prose

    embedder = encoder()
    words, seconds = measure_text(text)
    start = time.process_time()
    if embedder is not None:
        coherence_of_texts([read_prose(text)], embedder)
    return words, seconds + time.process_time() - start


def measure_compat(text: str) -> tuple[float, float]:
    """Measure one text's 27 figures of Context-Tester; a familiar-word list changes no cost."""
    from contextcliff_dagster.extensions.continuation.compat.metrics import text_metrics

    start = time.process_time()
    words = float(text_metrics(text, frozenset())["word_count"])
    return words, time.process_time() - start


def show_metrics(given: argparse.Namespace) -> None:
    """Print CPU and wall seconds; the first calls, with imports, are left out."""
    from contextcliff_dagster.extensions.continuation.prose.embedders import local_files

    texts = generations(given.generations)
    parts = [("metrics", measure_text), ("compat", measure_compat)]
    if local_files() is not None:
        parts.insert(1, ("metrics and coherence", measure_coherent))
    for name, measure in parts:
        with ProcessPoolExecutor(given.jobs) as pool:
            list(pool.map(measure, texts[: 20 * given.jobs]))
            start = time.perf_counter()
            words, cpu = map(sum, zip(*pool.map(measure, texts, chunksize=20), strict=True))
            seconds = time.perf_counter() - start
        print(
            f"{name}: {len(texts):,} generations of {words / len(texts):.0f} words: {cpu:.1f} CPU s"
            f", {seconds:.1f} s on {given.jobs} processes"
        )


def human_passages(folders: list[Path], words: int, most: int = 1 << 30) -> dict[str, list[str]]:
    """Return text -> consecutive passages of ``words`` words, at most ``most``."""
    from contextcliff_dagster.extensions.continuation.prose.words import read_prose

    passages = {}
    for path in sorted(one for folder in folders for one in folder.glob("*.txt")):
        whole = read_prose(path.read_text(encoding="utf-8"))
        bounds = pairwise([0, *map(int, whole.starts[words::words])])
        passages[path.stem] = [whole.text[a:b].strip() for a, b in bounds][:most]
    return passages


def broken(text: str, how: str, seed: int) -> str:
    """Return ``text`` with its second half, or all of it, broken."""
    rng = random.Random(seed)
    words = text.split()
    half = len(words) // 2
    kept, rest = words[:half], words[half:]
    if how == "looped":
        rest = (rest[:12] * len(rest))[: len(rest)]
    elif how == "one phrase":
        rest = (rest[:2] * len(rest))[: len(rest)]
    elif how == "drifting":
        frame = rest[:12]
        rest = [rng.choice(words) if at % 12 in (3, 9) else frame[at % 12] for at in range(half)]
    elif how == "another language":
        rest = [rng.choice(FRENCH) for _ in rest]
    elif how == "no sentence ends":
        kept, rest = [], [word.strip(".!?\"'") for word in words]
    elif how == "symbols":
        rest = ["".join(rng.choices("{}[]<>=#@$%^&|~", k=6)) for _ in rest]
    elif how == "random words":
        rest = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in rest]
    elif how == "half shuffled":
        rng.shuffle(rest)
    elif how == "shuffled":
        kept, rest = [], rng.sample(words, len(words))
    elif how == "simplified":
        short = [word.strip(';,:"') for word in words]
        kept, rest = [], [word + "." * (at % 8 == 7) for at, word in enumerate(short)]
    return " ".join([*kept, *rest])


FRENCH = "le la de et il elle que qui dans pas ne sur avec chien maison matin rue pain vie".split()
COLLAPSES = (
    "looped", "one phrase", "drifting", "another language", "no sentence ends", "symbols",
    "random words",
)  # fmt: skip


def tag(pair: tuple[str, str | None]) -> str:
    from contextcliff_dagster.extensions.continuation.prose.collapse import collapse_of

    return collapse_of(*pair)


def extremes(passages: list[str]) -> dict[str, float]:
    """Return each sign's most extreme value: nearest to its limit or furthest beyond it."""
    from contextcliff_dagster.extensions.continuation.prose.collapse import RULES, signs_of
    from contextcliff_dagster.extensions.continuation.prose.words import read_prose

    signs = [signs_of(read_prose(text), text, None, None) for text in passages]
    return {
        rule.sign: (min if rule.lower else max)(getattr(one, rule.sign) for one in signs)
        for rule in RULES
    }


def show_collapse(given: argparse.Namespace) -> None:
    with ProcessPoolExecutor(given.jobs) as pool:
        for words in (100, 200, 400, 700):
            print(f"collapse: passages of {words} words", flush=True)
            known = human_passages(given.prose, words)
            texts = {k: of[:: max(len(of) // given.most, 1)] for k, of in known.items()}
            for name, of in texts.items():
                alone = Counter(pool.map(tag, [(one, None) for one in of], chunksize=50))
                pairs = [(text, author) for author, text in pairwise(of)]
                paired = Counter(pool.map(tag, pairs, chunksize=50))
                shown = [f"{len(of) - alone.pop('', 0)} of {len(of):,} {dict(alone)}"]
                shown += [f"{len(pairs) - paired.pop('', 0)} of {len(pairs):,} {dict(paired)}"]
                print(f"  {name}: alone {shown[0]}, with the author's {shown[1]}", flush=True)
            if given.extremes:
                show_extremes(list(pool.map(extremes, [of for of in texts.values() if of])), words)
            first = [
                text for one in given.prose[:1] for p in one.glob("*.txt") for text in known[p.stem]
            ]
            sample = first[:: max(len(first) // 200, 1)][:200]
            for how in COLLAPSES:
                planted = [
                    (broken(text, how, at), sample[at - 1]) for at, text in enumerate(sample)
                ]
                tags = Counter(pool.map(tag, planted, chunksize=20))
                found = len(planted) - tags.pop("", 0)
                print(f"  planted, {how:18} {found:>4} of {len(planted)} {dict(tags)}", flush=True)


def show_extremes(found: list[dict[str, float]], words: int) -> None:
    from contextcliff_dagster.extensions.continuation.prose.collapse import RULES

    shown = (
        f"{rule.sign} {(min if rule.lower else max)(one[rule.sign] for one in found):.3g}"
        f" (limit {rule.limit_at(words):.3g})"
        for rule in RULES
    )
    print("  most extreme: " + ", ".join(shown), flush=True)


def described(scores: list[float | None]) -> str:
    from scipy.stats import kstest

    values = np.array([one for one in scores if one is not None], np.float64)
    return (
        f"n {len(values)}, mean {values.mean():.3f}, below .05: {(values < 0.05).mean():.3f},"
        f" below .25: {(values < 0.25).mean():.3f},"
        f" from uniform {kstest(values, 'uniform').statistic:.3f}"
    )


def show_score(given: argparse.Namespace) -> None:
    from contextcliff_dagster.extensions.continuation.noise import HumanNoise

    rng = random.Random(0)
    with ProcessPoolExecutor(given.jobs) as pool:
        for words in (95, 190, 770):
            texts = human_passages(given.prose, words)
            for of in texts.values():
                rng.shuffle(of)
                del of[given.passages :]
            metrics = {
                k: list(pool.map(prose_metrics, of, chunksize=20)) for k, of in texts.items()
            }
            noise = HumanNoise.fit({name: of[::2] for name, of in metrics.items()})
            rest = {
                name: list(zip(texts[name][1::2], of[1::2], strict=True))
                for name, of in metrics.items()
            }
            pairs = [pair for of in rest.values() for pair in zip(of[::2], of[1::2], strict=False)]
            human = [noise.score(a, b) for (_, a), (_, b) in pairs]
            print(f"score: {words} words, half of all: {described(human)}", flush=True)
            few = []
            for of in metrics.values():
                for at in range(0, len(of) - 40, 40):
                    one = HumanNoise.fit({"one": of[at : at + 24]})
                    left = of[at + 24 : at + 40]
                    few += [one.score(a, b) for a, b in zip(left[::2], left[1::2], strict=True)]
            print(f"  24 of one text: {described(few)}")
            for how in ("looped", "simplified", "half shuffled", "shuffled", "another language"):
                texts_broken = [broken(text, how, at) for at, ((text, _), _) in enumerate(pairs)]
                found = pool.map(prose_metrics, texts_broken, chunksize=20)
                scores = [noise.score(a, b) for a, (_, (_, b)) in zip(found, pairs, strict=True)]
                print(f"  {how:18} {described(scores)}", flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "metrics": show_metrics,
    "collapse": show_collapse,
    "score": show_score,
    "null": show_null,
    "planted": show_planted,
    "coverage": show_coverage,
    "arms": show_arms,
    "analysis": show_analysis,
    "recitation": show_recitation,
}


def main() -> None:
    from tools.fetch_prose import prose_folder

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    metrics = parts.add_parser("metrics")
    metrics.add_argument("--generations", type=int, default=1_000)
    metrics.add_argument("--jobs", type=int, default=2)
    for part in ("collapse", "score"):
        one = parts.add_parser(part)
        one.add_argument("--prose", type=Path, nargs="+", default=[prose_folder()])
        one.add_argument("--jobs", type=int, default=2)
        one.add_argument("--most", type=int, default=1 << 30, help="passages of each text")
    one.add_argument("--passages", type=int, default=200, help="of each text")
    parts.choices["collapse"].add_argument("--extremes", action="store_true")
    judged = {"null": 1_000, "planted": 200, "coverage": 1_000, "arms": 1_000, "analysis": 1}
    judged["recitation"] = 1_000
    for part, studies in judged.items():
        rates = parts.add_parser(part)
        rates.add_argument("--studies", type=int, default=studies)
        rates.add_argument("--source", nargs="+", default=["simulated", "prose"])
        rates.add_argument("--share", type=float, default=0.3)
        rates.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    PARTS[given.part](given)


if __name__ == "__main__":
    main()
