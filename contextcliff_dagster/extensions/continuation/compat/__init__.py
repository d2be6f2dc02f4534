"""Figures, statistics and files as in Context-Tester (MIT), so that its results stay comparable.

Its definitions are unchanged, including their rounding and known faults. Functions map texts and
numbers to numbers; only `result_files` and `runs` touch the disk. The list of familiar words always
comes from the user's own file. Nothing that the default method uses (`prose`, `analysis`) belongs
here.
"""
