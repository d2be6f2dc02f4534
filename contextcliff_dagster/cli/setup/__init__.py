"""`init` and `models add`: from an endpoint and a folder to the files that a measurement needs.

Belongs here: what is asked, offered and written at the beginning. Does not belong here: talking to
a server (`inference.execution.checks`), the text of a study (`studies.starter`).
"""
