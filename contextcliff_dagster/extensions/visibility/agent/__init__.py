"""What an agent reads and writes: prompts, their texts, replies, what is shown of a run.

Belongs here: pure functions of a task, the axes and what has happened so far. Does not belong here:
calls, training, clamping of proposals (`tasks`).
"""
