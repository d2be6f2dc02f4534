"""One module per command, named after it.

Belongs here: options and printed output.
Does not belong here: helpers that several commands share (they are in the parent package).
"""
