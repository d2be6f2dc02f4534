"""Text from files of many kinds, read in worker processes that a hostile file cannot harm.

Belongs here: recognising a file by its content, reading its text as it is (never cut, padded or
reordered), and the processes in which that happens, with limits on time and memory. Does not belong
here: which files to read, and what to do with their texts.

`extract_all` reads files in the order given. A file that is broken, encrypted, too large or
designed to harm its reader yields an `Unusable` with a reason, and never ends the run.
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
