"""Measurements of `profile` beyond a whole campaign (rounds, the sentinel), and its options.

Options of every command: ``cli/options.py``.
"""
