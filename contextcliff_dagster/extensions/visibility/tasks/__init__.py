"""Tasks to tune: data with splits, a model, its parameter space, and its score.

This package clamps proposals to bounds, loads bundled and prepared data, and trains single
configurations. Prompts, searches and landscapes (`landscape`) do not belong here.
"""
