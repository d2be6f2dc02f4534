"""The reference standard: tiny trained models whose cliff is known, and their documents.

Here belong the warehouse ledgers, the tokenizer, the training and measuring of the models, their
weights and cards. The engine that runs a model is in `inference/`, the adapter that makes a corpus
of ledgers in `corpora/`. Importing this room loads neither torch nor a tokenizer library.
"""
