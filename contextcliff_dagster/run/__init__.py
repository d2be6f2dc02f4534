"""Runs for the command line and notebooks: a study's assets, materialized in this process.

Does not belong here: what the assets are (`defs`), and how a command is read or printed (`cli`).
"""
