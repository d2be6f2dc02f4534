"""Views of a finished profile for a person, a machine or the Dagster UI.

Belongs here: rendering; the result contract of ``cliffs.json`` goes in, a picture, a Markdown page,
a JSON document or a terminal report comes out. Same input, same bytes.

Does not belong here: any statistic (``analysis``), any reading of the store or the ledger, any
clock. A number that the contract does not carry is not invented here; its absence is stated.
"""
