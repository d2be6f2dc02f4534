"""The experiments, one folder each: how a study asks its questions and judges the answers.

Belongs here: the questions, scoring, analysis and report of an experiment; `common` holds the parts
that experiments share. Experiments never import each other.
Does not belong here: Dagster (`defs`), and code that lower packages could share.
"""
