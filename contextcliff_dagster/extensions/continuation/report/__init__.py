"""Report of a continuation experiment: figures, tables and sections of the page.

This package draws pictures and writes sentences about results; statistics do not belong here.
"""
