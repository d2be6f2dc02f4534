"""Python source files that every machine has, and questions that their syntax trees answer.

Belongs here: finding files (``file_discovery.py``), reading one safely (``source_file.py``), what a
file defines (``module.py``), the kinds of questions (``single_hop.py``, ``two_hop.py``,
``line_completion.py``) and the corpus itself (``corpus.py``). Nothing is imported or executed from
the files, and nothing is sent anywhere.
"""

from __future__ import annotations

from contextcliff_dagster.corpora.python_source.corpus import PythonSourceCorpus

__all__ = ["PythonSourceCorpus"]
