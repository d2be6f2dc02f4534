"""Texts about each task and its score, and texts of the same length about nothing of the kind.

Facts are checked against data and formats by the tests. Texts on a score give its formula in words
and not its direction, which is an axis of its own.
"""
