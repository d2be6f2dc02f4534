"""The reference standard: tiny trained models with a known cliff, and their documents.

Belongs here: the warehouse documents, the tokenizer, and the models' weights and cards.
Does not belong here: training and measuring them (`tools/reference_models`), the engine that runs
them (`inference`), the corpus of these documents (`corpora`). Importing this package loads neither
torch nor a tokenizer library.
"""
