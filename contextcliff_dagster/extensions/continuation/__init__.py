"""Continuation: how a model's writing changes as its context grows.

Belongs here: continuation points in long texts, generations from them, comparisons of their prose
with the author's own, and conclusions about the length of the context.
"""
