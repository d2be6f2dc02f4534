"""Where a text is continued, what a model reads before that point, and what its author wrote after.

Does not belong here: how prose is measured.
"""
