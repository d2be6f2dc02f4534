"""Asking models and keeping what they say.

Here belong: the registry of models (``models.py``, ``models.yaml``), what is asked (``recipe.py``),
the engines that answer (``engine.py``, ``engines/``), the ledger that makes every call durable and
paid once (``ledger.py``, ``claims.py``), and the loop between them (``runner.py``, ``measure.py``).

Here do not belong: where documents come from (``corpora/``), which of them are asked about
(``sampling/``), and whether an answer is right (``scoring/``). Nothing here knows Dagster.
"""
