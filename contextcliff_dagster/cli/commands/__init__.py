"""One file per command, by its name; `sharing` has those whose files leave the store.

Belongs here: options, and what is printed.
Does not belong here: helpers that several commands share (the folder above).
"""
