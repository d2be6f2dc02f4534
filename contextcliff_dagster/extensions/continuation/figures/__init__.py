"""Pictures of runs: standard comparison, rounds, statistics, convergence.

Belongs here: drawing of figures that `compat` has; a collapse stays inside the axes. Runs in, PNG
bytes out.
"""
