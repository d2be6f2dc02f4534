"""Logs from other evaluation tools, read as records of single answers.

Belongs here: one module per format, recognised by a file's content and not by its name, and the one
place (`collect`) that turns logged answers into lengths, scores and documents and counts what could
not be used. Does not belong here: files that carry `length_tokens` and `score` themselves
(`records`).
"""
