"""Weights on this machine: where they lie, what they hash to, what a GGUF header says.

Does not belong here: running them (`engines`).
"""
