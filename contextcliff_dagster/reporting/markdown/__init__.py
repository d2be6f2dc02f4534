"""The report as a Markdown page, section by section.

Does not belong here: sentences that other outputs share (`wording`), pictures (`figures`).
"""
