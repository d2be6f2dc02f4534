"""Rendering of records as text and parsing them back: JSON lines, prose, CSV, Markdown tables.

This package writes records without loss and reads all of them back. The facts themselves
(`benchmarks`) and checks of answers against a text (`verification`) do not
belong here.
"""
