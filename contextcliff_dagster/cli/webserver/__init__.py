"""The process behind `contextcliff ui`: Dagster's webserver behind our guard, and its daemon.

Does not belong here: options and messages of the command (`commands.ui`).
"""
