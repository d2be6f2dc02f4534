"""Programs for maintainers of a checkout: training, fetching and converting models.

Nothing here is part of the installed package.
"""
