"""Partial measurements by `profile` (rounds, the sentinel), and its options.

Options of all commands are in ``cli/options.py``.
"""
