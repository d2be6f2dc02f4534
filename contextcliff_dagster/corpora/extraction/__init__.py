"""Text of files of many kinds, read in worker processes that a hostile file cannot harm.

Belongs here: recognising a file by its content, reading its text as it is (never cut,
padded or reordered), and the processes with limits of time and memory in which that happens.
Does not belong here: which files to read, and what to do with their texts.

`extract_all` reads files in the order given. A file that is broken, encrypted, too large or made
to harm its reader costs an `Unusable` with a reason, never the run.
"""

from contextcliff_dagster.corpora.extraction.file_type import (
    KINDS,
    Extracted,
    Limits,
    Unusable,
    extractor_version,
)
from contextcliff_dagster.corpora.extraction.pool import extract_all

__all__ = ["KINDS", "Extracted", "Limits", "Unusable", "extract_all", "extractor_version"]
