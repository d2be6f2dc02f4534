"""Analysis of scored records, resulting in a verdict with its uncertainty.

Belongs here: statistics of evaluation records, the verdict, the safe cap, and the assembly of
``metrics.json`` and ``cliffs.json``, all pure functions of data and a seed. Each reason in a result
is one sentence, written by the function that decides.
Does not belong here: files, figures and all other prose (`reporting`), scoring, engines.
"""

from typing import Final

METHOD_VERSION: Final = "3"
"""Version of the method for verdict and cap, stored in every result. Raise it if the same records
would give a different cap; caps are never compared across versions. 1 (null in older files): a
family of steps, ramps and dips; 2: a posterior over curves that only fall."""
