"""The corpus `folder`: documents as they are in a folder, with questions next to them or made here.

Belongs here: which files count (``walk.py``), what became of each (``file_report.py``), the table
of questions (``questions.py``), questions of verbatim recall that are built and verified from the
text itself (``verbatim_recall.py``), and the corpus (``corpus.py``). Getting text out of a file
belongs to ``corpora/extraction``.
"""

from contextcliff_dagster.corpora.folder.corpus import FolderCorpus

__all__ = ["FolderCorpus"]
