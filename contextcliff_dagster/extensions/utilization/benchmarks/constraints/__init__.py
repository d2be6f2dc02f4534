"""Distributed constraints: values that follow from scattered statements."""
