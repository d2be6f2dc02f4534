"""What is tuned: data with its splits, a model, its space of parameters, and its score.

Belongs here: bounds and what happens to a proposal beyond them, bundled and prepared data, training
one configuration. Does not belong here: prompts, searches, many configurations (`landscape`).
"""
