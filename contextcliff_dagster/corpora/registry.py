"""Which kinds of corpora there are, and opening one by its kind and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from contextcliff_dagster.contracts import CorpusError
from contextcliff_dagster.corpora.benchmarks.benchmark_table import BENCHMARKS
from contextcliff_dagster.corpora.corpus import StreamedCorpus
from contextcliff_dagster.corpora.files import FileCorpus
from contextcliff_dagster.corpora.folder import FolderCorpus
from contextcliff_dagster.corpora.mixed import MixedCorpus
from contextcliff_dagster.corpora.python_source import PythonSourceCorpus
from contextcliff_dagster.corpora.readers.download import is_url, local_copy
from contextcliff_dagster.corpora.reference_corpus import ReferenceCorpus

ENTRY_POINT_GROUP = "contextcliff.corpora"
"""Other packages' corpora: entry points of this group, each a callable from options to a corpus."""

CORPUS_KINDS: dict[str, Callable[[Mapping[str, Any]], StreamedCorpus]] = {
    "reference": ReferenceCorpus,
    "file": FileCorpus,
    "folder": FolderCorpus,
    "python-source": PythonSourceCorpus,
    **BENCHMARKS,
    "mixed": lambda options: MixedCorpus(options, open_corpus),
}


def open_corpus(kind: str, options: Mapping[str, Any]) -> StreamedCorpus:
    """The corpus of this kind; nothing is read yet beyond what proves that it can be.

    A ``path`` that is an address is downloaded first, unless it was before.

    Raises:
        CorpusError: there is no such kind, its package cannot be imported, an option is wrong, or
            the source is not there.
    """
    if isinstance(path := options.get("path"), str) and is_url(path):
        options = {**options, "path": str(local_copy(path))}
    if kind in CORPUS_KINDS:
        return CORPUS_KINDS[kind](options)
    others = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in others:
        raise CorpusError(
            f"There is no corpus of kind {kind!r}; "
            f"there are {', '.join(sorted({*CORPUS_KINDS, *others}))}."
        )
    try:
        adapter: Callable[[Mapping[str, Any]], StreamedCorpus] = others[kind].load()
    except Exception as error:
        raise CorpusError(
            f"Corpus kind {kind!r} ({others[kind].value}) cannot be imported: {error}; fix or "
            "reinstall its package."
        ) from error
    return adapter(options)
