"""Safe context caps of models, computed from published outcomes of other people's evaluations.

Each table of outcomes, with one row per answer, has a file that describes it (`sources`). Its rows
are divided into series of one model, task and condition (`series`), and each series is analysed
like a measurement of this project.
"""
