"""The figures, statistics and files of Context-Tester (MIT), so that its results stay comparable.

Belongs here: its definitions as they are, their rounding and their known faults included. Texts and
numbers in, numbers out; only `result_files` and `earlier_runs` touch the disk. A list of familiar
words is always the user's own file.
Does not belong here: anything that the corrected default uses (`prose`, `analysis`).
"""
