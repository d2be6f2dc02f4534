"""`init` and `models add`: create the files of a measurement from an endpoint and a folder.

Belongs here: the questions and files of the setup. Does not belong here: calls to a server
(`inference.execution.checks`) and the text of a study (`studies.starter`).
"""
