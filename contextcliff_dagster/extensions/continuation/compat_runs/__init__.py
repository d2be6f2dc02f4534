"""Runs with Context-Tester's files: measured by a study, written as folders, analysed again.

Belongs here: what joins `compat` (its definitions) to documents, ledger, embeddings and files.
Does not belong here: the definitions themselves.
"""
