"""Continuation: how a model's writing changes as its context grows.

This package holds continuation points in long texts, the generations there, comparisons of their
prose with the author's own, and conclusions about the length of the context.
"""
