"""Tokenizers that count: by name, exact, fast, offline; or the count of a running server.

Does not belong here: the length map that they fill (`sampling.length_map`).
"""
