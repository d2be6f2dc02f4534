"""Visibility: what an agent may see while it tunes hyper-parameters, and how it then behaves.

Belongs here: tasks with their spaces of parameters, landscapes of their scores, searches without a
model, and measures of how a search behaves.
"""
