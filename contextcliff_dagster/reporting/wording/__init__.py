"""Numbers and results in words, one spelling for every output.

Does not belong here: layout of any one output.
"""
