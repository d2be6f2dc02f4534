"""Python source files that every machine has, and questions that their syntax trees answer.

Belongs here: finding files (``found.py``), reading one safely (``reading.py``), what a file defines
(``module.py``), the kinds of questions (``one_place.py``, ``two_places.py``, ``lines.py``) and the
corpus itself (``adapter.py``). Nothing is imported or executed from the files, and nothing is sent
anywhere.
"""

from __future__ import annotations

from contextcliff_dagster.corpora.python_source.corpus import PythonSourceCorpus

__all__ = ["PythonSourceCorpus"]
