"""What the report shows of a continuation experiment: figures, tables, sections of the page.

Belongs here: pictures and words about results. Does not belong here: statistics.
"""
