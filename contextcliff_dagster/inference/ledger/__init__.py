"""The call ledger, which stores every call, lets one process claim it, and pays for it once.

Belongs here: schema, statements, both databases, campaigns, migration, pruning, verification.
"""
