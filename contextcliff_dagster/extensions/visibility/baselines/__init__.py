"""Searches without a language model, on the same budget as one with it.

Belongs here: how they choose, running them, the curves of a run. Does not belong here: training.
"""
