"""Python source files that every machine has, and questions that their syntax trees answer.

Belongs here: finding and reading files and their definitions (``files.py``), the kinds of questions
and which are asked (``questions.py``), and the corpus itself (``corpus.py``). Nothing is imported
or executed from the files, nor sent anywhere.
"""

from __future__ import annotations

from contextcliff_dagster.corpora.python_source.corpus import PythonSourceCorpus

__all__ = ["PythonSourceCorpus"]
