"""Records as text, and text as records: JSON lines, prose, CSV, Markdown tables.

Belongs here: writing records down without loss, and reading every one of them back. Does not
belong here: what is true (`benchmarks`), and whether an answer follows from a text
(`verification`).
"""
