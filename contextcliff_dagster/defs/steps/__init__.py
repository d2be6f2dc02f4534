"""The steps of a study at a store, one function per asset, free of Dagster.

Belongs here: what is reused, which room is called with which part of the study, which file the
result goes to. Does not belong here: the work itself (the rooms) and how it is shown (`assets/`).
"""
