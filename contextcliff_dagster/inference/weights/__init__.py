"""Weights on this machine: where they are, their hashes, what a GGUF header says.

Does not belong here: running them (`engines`).
"""
