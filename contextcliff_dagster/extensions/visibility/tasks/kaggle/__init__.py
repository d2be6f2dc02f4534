"""Tasks on the files of five Kaggle competitions, which everybody downloads with an account of
their own: format, preparation, and the model that is tuned.
"""
