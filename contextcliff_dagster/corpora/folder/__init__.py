"""The corpus `folder`: a folder's documents as they are, with supplied or generated questions.

Belongs here: which files count (``walk.py``), what happened to each (``file_report.py``), the table
of questions (``questions.py``), questions of verbatim recall that are built and verified from the
text itself (``verbatim_recall.py``), and the corpus (``corpus.py``). Extracting text from a file
belongs in ``corpora/extraction``.
"""

from contextcliff_dagster.corpora.folder.corpus import FolderCorpus as FolderCorpus
