"""Records or tables of one model to `metrics.json` and `cliffs.json`.

Belongs here: calling the other rooms in order and assembling their results.
Does not belong here: estimates of its own.
"""
