"""Functions for notebooks and scripts: `analyze`, `profile`, `compare`, and their results.

Belongs here: conversion of any library's columns to records, and display of results. Does not
belong here: measuring, analysing, drawing; the functions call the same code as the command line, so
that both give the same numbers.
"""
