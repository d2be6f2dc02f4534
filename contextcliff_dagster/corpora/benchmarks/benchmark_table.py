"""The table of benchmark adapters."""

from __future__ import annotations

from contextcliff_dagster.corpora.benchmarks.babilong import BabiLongCorpus
from contextcliff_dagster.corpora.benchmarks.corpus import BenchmarkCorpus
from contextcliff_dagster.corpora.benchmarks.hotpotqa import (
    HotpotQACorpus,
    MuSiQueCorpus,
    TwoWikiCorpus,
)
from contextcliff_dagster.corpora.benchmarks.leval import LEvalCorpus
from contextcliff_dagster.corpora.benchmarks.longbench import (
    LongBenchCorpus,
    LongBenchProCorpus,
    LongBenchV2Corpus,
)
from contextcliff_dagster.corpora.benchmarks.narrativeqa import NarrativeQACorpus
from contextcliff_dagster.corpora.benchmarks.qasper import QasperCorpus
from contextcliff_dagster.corpora.benchmarks.quality import QualityCorpus
from contextcliff_dagster.corpora.benchmarks.squad import SquadCorpus

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
"""Benchmark adapters by the name that a study gives in ``corpus.kind``."""


PUBLISHED = {
    "squad": "https://rajpurkar.github.io/SQuAD-explorer",
    "hotpotqa": "https://hotpotqa.github.io",
    "2wikimultihopqa": "https://github.com/Alab-NII/2wikimultihop",
    "musique": "https://github.com/StonyBrookNLP/musique",
    "narrativeqa": "https://github.com/google-deepmind/narrativeqa (whose download_stories.sh "
    "fetches the stories)",
    "quality": "https://github.com/nyu-mll/quality",
    "qasper": "https://allenai.org/data/qasper",
    "longbench": "https://huggingface.co/datasets/zai-org/LongBench",
    "longbench-v2": "https://huggingface.co/datasets/zai-org/LongBench-v2",
    "longbench-pro": "https://huggingface.co/datasets/caskcsg/LongBench-Pro",
    "babilong": "https://huggingface.co/datasets/RMT-team/babilong",
    "l-eval": "https://github.com/OpenLMLab/LEval",
}
"""Addresses where the benchmarks are published, shown in the error for a missing local copy."""
