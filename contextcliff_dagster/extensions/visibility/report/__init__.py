"""What people see of the experiment: a page as data, its pictures, single runs in words.

Belongs here: wording, tables and drawing of a `results.VisibilityResult`, and of the records of a
run. Does not belong here: any figure of several runs that is not in the result (`analysis`).
"""
