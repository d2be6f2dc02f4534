"""Tasks to tune: data with splits, a model, its parameter space, and its score.

This package handles bounds and clamping of proposals, bundled and prepared data, and training of
single configurations. Prompts, searches and landscapes (`landscape`) do not belong here.
"""
