"""Ways to ask and judge on the shared rooms: one folder per experiment.

Belongs here: what an experiment asks, how it is scored, analysed and reported; `common` holds what
experiments share. Experiments never import each other.
Does not belong here: Dagster (`defs`), and anything that two rooms below could share.
"""
