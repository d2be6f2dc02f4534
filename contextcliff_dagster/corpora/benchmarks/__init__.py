"""Adapters of public benchmarks in the file formats that they are published in.

Belongs here: reading one benchmark's own files (a local copy), a module per benchmark or family,
and what all share: checked access to a record (``item.py``), accepted answers (``answers.py``),
texts joined from pieces whose positions are kept (``pieces.py``), and the corpus itself
(``corpus.py``). Texts are used as published: nothing is downloaded, cut, padded or reordered.
"""

from __future__ import annotations

from contextcliff_dagster.corpora.benchmarks.babilong import BabiLongCorpus
from contextcliff_dagster.corpora.benchmarks.corpus import BenchmarkCorpus
from contextcliff_dagster.corpora.benchmarks.hotpotqa import HotpotQACorpus, TwoWikiCorpus
from contextcliff_dagster.corpora.benchmarks.leval import LEvalCorpus
from contextcliff_dagster.corpora.benchmarks.longbench import (
    LongBenchCorpus,
    LongBenchProCorpus,
    LongBenchV2Corpus,
)
from contextcliff_dagster.corpora.benchmarks.musique import MuSiQueCorpus
from contextcliff_dagster.corpora.benchmarks.narrativeqa import NarrativeQACorpus
from contextcliff_dagster.corpora.benchmarks.qasper import QasperCorpus
from contextcliff_dagster.corpora.benchmarks.quality import QualityCorpus
from contextcliff_dagster.corpora.benchmarks.squad import SquadCorpus

__all__ = ["BENCHMARKS", "BenchmarkCorpus"]

BENCHMARKS: dict[str, type[BenchmarkCorpus]] = {
    corpus.name: corpus
    for corpus in (
        SquadCorpus,
        HotpotQACorpus,
        TwoWikiCorpus,
        MuSiQueCorpus,
        NarrativeQACorpus,
        QualityCorpus,
        QasperCorpus,
        LongBenchCorpus,
        LongBenchV2Corpus,
        LongBenchProCorpus,
        BabiLongCorpus,
        LEvalCorpus,
    )
}
"""By the name that a study gives as ``corpus.kind``."""
