"""Continuation: how a model's writing changes as its context grows.

Belongs here: continuation points in long texts, the generations from them, measures of their prose
against the author's own, and what follows for the length of the context.
"""
