"""Sections as Markdown, and outside text made safe for it.

Does not belong here: what a report says (`length_profile`, the experiments).
"""
