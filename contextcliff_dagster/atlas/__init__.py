"""What published outcomes of others' evaluations say of the safe context of models.

Tables of outcomes, one row an answer, come with a file that says what they are (`sources`); their
rows are parted into series of one model, task and condition (`series`), each of which is analysed
like a measurement of one's own.
"""
