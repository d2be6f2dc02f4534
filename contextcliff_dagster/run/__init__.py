"""In-process runs that materialize a study's assets, for the command line and notebooks.

Does not belong here: definitions of assets (`defs`), and parsing or output of commands (`cli`).
"""
