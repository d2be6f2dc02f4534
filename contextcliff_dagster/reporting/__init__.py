"""Views of a finished profile for a person, a machine or the Dagster UI.

Belongs here: rendering the result contract of ``cliffs.json`` as a picture, a Markdown page, a JSON
document or a terminal report. Same input, same bytes.

Does not belong here: statistics (``analysis``), reading the store or the ledger, or a clock. If the
contract lacks a number, the report says so and does not compute one.
"""
