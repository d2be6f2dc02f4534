"""Times over length: what length explains, what it does not, and the cap that they set.

Belongs here: regressions and change points of call times.
Does not belong here: scores.
"""
