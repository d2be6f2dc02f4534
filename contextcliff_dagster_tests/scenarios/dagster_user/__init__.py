"""What a Dagster engineer looks for in the UI, in one walk through one UI in a browser.

`walk.py` is what the steps share; each step is a file, `test_walk.py` their order.
"""
