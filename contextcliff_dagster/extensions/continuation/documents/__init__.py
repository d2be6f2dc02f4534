"""Contexts and the author's passages: made from the texts, kept in the store, listed.

Does not belong here: where points lie (`passages`).
"""
