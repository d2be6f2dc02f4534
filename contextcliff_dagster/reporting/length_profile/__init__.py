"""The length profile's page as sections, independent of the output format.

Does not belong here: markup (`markdown`), sentences shared with other outputs (`wording`), pictures
(`figures`).
"""
