"""The call ledger: every call durable, claimed by one process, and paid once.

Belongs here: schema, statements, both databases, campaigns, migration, pruning, verification.
Does not belong here: deciding which calls to make (`execution`).
"""
