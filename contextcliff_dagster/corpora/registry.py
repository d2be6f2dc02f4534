"""Which kinds of corpora there are, and opening one by its kind and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.corpus import Corpus
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.ledgers import LedgerCorpus
from contextcliff_dagster.corpora.python_source import PythonSourceCorpus

__all__ = ["CORPUS_KINDS", "open_corpus"]

CORPUS_KINDS: dict[str, Callable[[Mapping[str, Any]], Corpus]] = {
    "reference": LedgerCorpus,
    "file": FileCorpus,
    "python-source": PythonSourceCorpus,
}


def open_corpus(kind: str, options: Mapping[str, Any]) -> Corpus:
    """The corpus of this kind; nothing is read yet beyond what proves that it can be.

    Raises:
        CorpusError: there is no such kind, an option is wrong, or the source is not there.
    """
    if kind not in CORPUS_KINDS:
        raise CorpusError(
            f"There is no corpus of kind {kind!r}; there are {', '.join(sorted(CORPUS_KINDS))}."
        )
    return CORPUS_KINDS[kind](options)
