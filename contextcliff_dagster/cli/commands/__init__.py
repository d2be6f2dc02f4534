"""One file per command, by its name.

Belongs here: options, and what is printed.
Does not belong here: helpers that several commands share (the folder above).
"""
