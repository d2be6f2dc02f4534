"""The corpus `folder`: documents as they lie in a folder, with questions beside them or made here.

Belongs here: which files count (``walk.py``), what became of each (``account.py``), the table of
questions beside them (``questions.py``), questions of verbatim recall that are built and verified
from the text itself (``recall.py``), and the corpus (``corpus.py``). Getting text out of a file is
``corpora/extraction``'s.
"""

from contextcliff_dagster.corpora.folder.corpus import FolderCorpus

__all__ = ["FolderCorpus"]
