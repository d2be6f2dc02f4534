"""What `profile` measures besides a whole campaign: rounds, the sentinel; and its own options.

Of every command's options: ``cli/options.py``.
"""
