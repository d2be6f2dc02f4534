"""What a Dagster engineer looks for in the UI, asked of one UI as its page asks.

`walk.py` is what the steps share; each step is a file, `test_walk.py` their order.
"""
