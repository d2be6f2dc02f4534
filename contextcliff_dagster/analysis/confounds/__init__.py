"""Whether length itself explains a drop: question mix, evidence position, levels, controls.

Belongs here: tests and standardised means over other properties of the questions.
Does not belong here: the statistics that they share (`statistics`).
"""
