"""How a search behaves, whatever it scores: configurations in, figures out.

Belongs here: context-eval's stability metrics as they are (`stability`), and ours (`measures`).
Does not belong here: training, scores, regret.
"""
