"""A report as one self-contained HTML file that needs no network, server or other file.

Belongs here: sections as HTML and the page around them (`render`), the picture and its data
(`picture`, `payload`), and the page's style and scripts (``assets``). Does not belong here: what a
report states (`length_profile`, the experiments).
"""
