"""A report as one HTML file that needs nothing else: no network, no server, no other file.

Belongs here: sections as HTML (`render`), the page around them (`page`), the picture and its data
(`picture`, `payload`), and, in ``assets``, the style and the scripts that the page carries. Does
not belong here: what a report states (`length_profile`, the experiments).
"""
