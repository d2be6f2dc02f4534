"""Scored records in, a verdict with its uncertainty out.

Belongs here: statistics over eval records, the verdict, the safe cap, and the assembly of
``metrics.json`` and ``cliffs.json``, all pure functions of data and a seed; a reason that a result
carries is one sentence made where it is judged.
Does not belong here: files, pictures and all other prose (`reporting`), scoring, engines.
"""

from typing import Final

METHOD_VERSION: Final = "3"
"""Of verdict and cap, in every result. Raise it when the same records would give another cap; caps
of two versions are never compared. 1 (in older files: null): a family of steps, ramps and dips;
2: a posterior over curves that only fall."""
