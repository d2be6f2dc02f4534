"""Documents that an experiment makes and keeps in the store before anything is asked.

They are two assets: ``<experiment>_documents``, with partitions of their own, and
``<experiment>_manifest``, which makes those that are missing and lists them all with its own hash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from contextcliff_dagster.archive.kept_documents import KeptList
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import Study

DEFAULT_TOKENIZER = "tiktoken:o200k_base"


@dataclass(frozen=True)
class MadeDocuments:
    """Documents in the store. ``sha256``: their hash, which is the data version of the asset.

    ``values``: what to show of them, JSON-ready.
    """

    sha256: str
    values: Mapping[str, Any] = field(default_factory=dict)


class KeptDocuments(ABC):
    """How an experiment makes, keeps and lists its documents.

    Whatever is made is kept by a hash of what decides it: making it again costs nothing.
    ``version``: raised when the same study would get other documents. ``description``: of the
    documents, in the UI.
    """

    version: ClassVar[str] = "1"
    description: ClassVar[str] = (
        "Documents made for this study, each verified by a second way to its answers."
    )

    @abstractmethod
    def keys(self, study: Study) -> Mapping[str, Sequence[str]]:
        """Return both partition dimensions, by Dagster's name for them: their keys, slugs, fixed by
        the study file alone. Dagster goes through the dimensions in the order of the names."""

    @abstractmethod
    def make(self, study: Study, store: Store, partition: Mapping[str, str]) -> MadeDocuments:
        """Make the documents of one partition (dimension -> key) unless they are kept.

        Raises:
            StudyError: they cannot be made as the study asks.
            StoreError: the store cannot be written.
        """

    @abstractmethod
    def freeze(self, study: Study, store: Store) -> MadeDocuments:
        """Return the list of all documents, written anew where it is not that of ``study``.

        Raises:
            StudyError, StoreError: as `make`.
        """

    @abstractmethod
    def frozen(self, study: Study, store: Store) -> MadeDocuments | None:
        """Return the list in the store where it is that of ``study``; nothing is made."""

    @abstractmethod
    def depends_on(self, study: Study) -> Mapping[str, Any]:
        """Return the parts of ``study`` that decide the documents, JSON-ready."""

    def archived(self, study: Study, store: Store) -> KeptList | None:
        """Return what an archive of ``study`` has to hold: None where the study alone decides the
        documents, so that they can be made again anywhere.

        Raises:
            StoreError: they cannot be read.
        """
        return None

    def restore(self, study: Study, store: Store, kept: KeptList, file: Path) -> Callable[[], None]:
        """Return what writes ``kept``, of the archive ``file``, into ``store``.

        Raises:
            StoreError: these are no documents of ``study``, or the store has others.
        """
        raise NotImplementedError


def tokenizer_name(study: Study, key: str) -> str:
    """Return what counts documents: the tokenizer of the section ``key``, the study's, or ours."""
    own: str = study.sections[key].tokenizer
    return own or study.tokenizer_name or DEFAULT_TOKENIZER


def tokenizer_of(study: Study, key: str) -> Tokenizer:
    """Open `tokenizer_name`.

    Raises:
        StudyError: there is none of that name, or it cannot be opened.
    """
    from contextcliff_dagster.studies.study_paths import refuse_without_leave

    refuse_without_leave(study, "tokenizer")
    return opened_tokenizer(tokenizer_name(study, key))


@lru_cache(maxsize=2)
def opened_tokenizer(name: str) -> Tokenizer:
    """Open a tokenizer by its name, once; raises StudyError."""
    from contextcliff_dagster.inference.models.tokenizers import open_any_tokenizer

    return open_any_tokenizer(name)
