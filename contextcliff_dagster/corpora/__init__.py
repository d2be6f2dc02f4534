"""Where documents and questions come from: adapters that turn a source into Documents and Examples.

Belongs here: reading sources (files, the generated reference corpus), judging their rows, and
writing them once as Parquet of the declared tables. Does not belong here: counting tokens, binning
and sampling (``sampling/``), or anything that depends on a model.
"""
