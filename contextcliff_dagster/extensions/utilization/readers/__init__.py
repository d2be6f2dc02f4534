"""Readers of known ability as engines: one perfect, one that guesses, one with planted losses.

Belongs here: what stands in for a model so that the experiment itself can be tested. They read the
prompt and nothing else. Does not belong here: how answers are found (`verification`).
"""
