"""The inference layer: asking models questions and storing their answers.

Belongs here: the registry of models (``models``), the questions (``requests``), the engines that
answer them (``engines``), the ledger that stores every call and pays for it once (``ledger``), and
the loop that sends the calls (``execution``).

Does not belong here: the sources of documents (``corpora/``), the choice of documents
(``sampling/``), and the scoring of answers (``scoring/``). Nothing here depends on Dagster.
"""
