"""In-process runs for the command line and notebooks: materialization of a study's assets.

Does not belong here: definitions of assets (`defs`), and parsing or output of commands (`cli`).
"""
