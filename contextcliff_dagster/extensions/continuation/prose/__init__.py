"""Measures of prose: pure functions of a text, which typography does not move.

Belongs here: words and sentences, metrics, signs of collapse, verbatim overlap, and embeddings of
sentences. Does not belong here: how far two texts are from each other (`distance/`), and the
metrics of another tool's result files (`compat/`).
"""
