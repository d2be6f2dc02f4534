"""Studies of continuations made of real prose: texts through collapse, score and analysis.

Passages have 200 words and come from the novels in data/prose (`make prose`). A quarter of them
forms the noise floor, another serves as authors' texts and as texts that models "write". Each
record equals the result of `scoring.score_rows` for the same text; `agreement` counts this. Values
of a text alone (metrics, collapse) are computed once, because passages are drawn repeatedly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.extensions.continuation.noise import Authors
from contextcliff_dagster.extensions.continuation.prose.collapse import Collapse, collapse_of
from contextcliff_dagster.extensions.continuation.prose.metrics import ProseMetrics, metrics_of
from contextcliff_dagster.extensions.continuation.prose.words import Prose, language_of, read_prose
from contextcliff_dagster.extensions.continuation.scoring import score_rows
from contextcliff_dagster_tests.support.simulated_study import SimulatedStudy, Spoiled

Kind = Literal["", "looped", "simplified", "shuffled"]
KINDS: tuple[Spoiled, ...] = ("looped", "simplified", "shuffled")
WORDS, LONG = 200, 6
COLUMNS = ["text", "passage", "context_tokens", "round", "arm", "score", "collapse"]


@dataclass
class Written:
    """A text that stands for a model's continuation.

    Attributes:
        plain: a passage of the same language that shows no sign of collapse.
    """

    text: str
    plain: str
    _metrics: dict[int, ProseMetrics] = field(default_factory=dict)

    @cached_property
    def tag(self) -> Collapse:
        """Return its collapse tag after a passage that shows no sign of collapse."""
        return collapse_of(self.text, self.plain)

    def metrics(self, words: int) -> ProseMetrics:
        if words not in self._metrics:
            self._metrics[words] = metrics_of(read_prose(self.text).first(words))
        return self._metrics[words]


@dataclass
class Novels:
    """The authors' passages by number, their novels, and each passage intact and spoiled."""

    authors: Authors
    novel: np.ndarray[Any, np.dtype[np.int64]]
    written: Sequence[dict[Kind, Written]]

    def record(self, one: Written, passage: int) -> tuple[float | None, str]:
        """Return score and collapse of a text after a passage, as `score_rows` computes them."""
        author = self.authors.after[str(passage)]
        tag = one.tag
        if tag and self.written[passage][""].tag:
            tag = collapse_of(one.text, author.text)
        if tag:
            return 0.0, tag
        words = self.authors.compared_words(str(passage), len(read_prose(one.text).words))
        if not words:
            return None, ""
        after = self.authors.metrics_after(str(passage), words)
        return self.authors.noise(words).score(one.metrics(words), after), ""


def spoil(words: Sequence[str], kind: Kind, rng: np.random.Generator) -> str:
    """Return the passage unchanged, or spoiled in one of three ways."""
    if kind == "looped":
        start = int(rng.integers(WORDS // 4, WORDS - 8))
        kept = list(words[: WORDS // 4])
        return " ".join([*kept, *(list(words[start : start + 8]) * WORDS)[: WORDS - len(kept)]])
    if kind == "shuffled":
        return " ".join(rng.permutation(np.array(words, object)))
    if kind == "simplified":
        short = [word.strip(",;:.!?\"'()_-") for word in words if len(word) <= LONG]
        groups = [short[i : i + 6] for i in range(0, len(short), 6)]
        return " ".join(" ".join(group).capitalize() + "." for group in groups)
    return " ".join(words)


def _passages(text: str) -> list[str]:
    """Return the consecutive passages of `WORDS` words."""
    whole = read_prose(text)
    ends = [*map(int, whole.starts[WORDS::WORDS])]
    return [whole.text[a:b].strip() for a, b in zip([0, *ends], ends, strict=False)]


@cache
def novels() -> Novels:
    """Read the novels, once per process."""
    from tools.fetch_prose import prose_folder

    rng = np.random.default_rng(0)
    after: dict[str, Prose] = {}
    human: dict[str, list[Prose]] = {}
    number, kinds = [], []
    plain = None
    for novel, path in enumerate(sorted(prose_folder().glob("*.txt"))):
        passages = _passages(path.read_text(encoding="utf-8"))
        human[path.stem] = [read_prose(one) for one in passages[::4]]
        plain = plain or passages[2]
        assert not collapse_of(plain)
        for text in passages[1::4]:
            prose = read_prose(text)
            assert language_of(prose.words) == "English"
            versions: tuple[Kind, ...] = ("", *KINDS)
            texts = {kind: spoil(text.split(), kind, rng) for kind in versions}
            kinds.append({kind: Written(t, plain) for kind, t in texts.items()})
            after[str(len(number))] = prose
            number.append(novel)
    if not number:
        raise SystemExit("data/prose is empty: `make prose` fetches the novels.")
    return Novels(Authors(after, human), np.array(number), kinds)


def drawn_texts(
    study: SimulatedStudy, rng: np.random.Generator
) -> list[tuple[int, int, int, Written]]:
    """Yield author's passage, size, round and text; texts are other passages, some spoiled."""
    known = novels()
    drawn = []
    for author in rng.choice(len(known.novel), study.passages, replace=False):
        others = np.flatnonzero(known.novel == known.novel[author])
        others = others[others != author]
        chosen = rng.choice(others, (len(study.sizes), study.rounds))
        for size, tokens in enumerate(study.sizes):
            for turn in range(study.rounds):
                bad = tokens >= study.from_size and rng.random() < study.share
                kind: Kind = study.spoiled if bad else ""
                drawn.append((int(author), tokens, turn, known.written[chosen[size, turn]][kind]))
    return drawn


def prose_study(study: SimulatedStudy, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a study like `SimulatedStudy.draw`, with real passages, scores and collapses."""
    known = novels()
    rows = [
        (f"novel {known.novel[at]}", str(at), tokens, turn, "base", *known.record(one, at))
        for at, tokens, turn, one in drawn_texts(study, rng)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def agreement(study: SimulatedStudy, seed: int) -> tuple[int, int]:
    """Return how many records of a study equal those of `score_rows`, and how many there are."""
    known = novels()
    drawn = drawn_texts(study, np.random.default_rng(seed))
    ours = prose_study(study, np.random.default_rng(seed))
    examples, rows = {}, []
    for number, (at, tokens, turn, one) in enumerate(drawn):
        name = str(number)
        metadata = {"text": "", "passage": str(at), "context_tokens": tokens, "arm": "base"}
        examples[name] = Example(name, name, "", (), "continuation", metadata)
        rows.append({"example_id": name, "replicate": turn, "raw_output": one.text})
    theirs = score_rows(rows, examples, known.authors)
    pairs = zip(ours[["score", "collapse"]].itertuples(index=False), theirs, strict=True)
    same = sum(a.score == b["score"] and a.collapse == b["collapse"] for a, b in pairs)
    return same, len(rows)
