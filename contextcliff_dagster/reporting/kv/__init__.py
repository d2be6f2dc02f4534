"""KV policies in reports: what one saves against another, and all of a model side by side.

Belongs here: tables and sentences of `contracts.results.kv`. Does not belong here: pictures
(`reporting.figures`), and what is concluded (`analysis.comparison`).
"""
