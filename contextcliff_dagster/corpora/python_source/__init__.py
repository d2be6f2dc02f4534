"""Python source files, which every machine has, and questions that their syntax trees answer.

Belongs here: finding and reading files and their definitions (``files.py``), the kinds of questions
and the choice among them (``questions.py``), and the corpus itself (``corpus.py``). The files are
never imported or executed, nor sent anywhere.
"""

from contextcliff_dagster.corpora.python_source.corpus import (
    PythonSourceCorpus as PythonSourceCorpus,
)
