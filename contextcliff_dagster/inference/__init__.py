"""Asking models and keeping their answers.

Belongs here: the registry of models (``models``), what is asked (``requests``), the engines that
answer (``engines``), the ledger that makes every call durable and paid once (``ledger``), and the
loop between them (``execution``).

Does not belong here: where documents come from (``corpora/``), which of them are asked about
(``sampling/``), and whether an answer is right (``scoring/``). Nothing here knows Dagster.
"""
