"""Records of one model to its result: runs, effects of the axes, interactions, curves, the plan.

Does not belong here: training, prompts, what people see.
"""
