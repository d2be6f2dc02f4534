"""The length profile's page as sections, for any renderer.

Does not belong here: markup (`markdown`), sentences that other outputs share (`wording`), pictures
(`figures`).
"""
