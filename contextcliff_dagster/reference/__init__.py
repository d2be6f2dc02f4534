"""The reference standard: tiny trained models whose cliff is known, and their documents.

Belongs here: the warehouse documents, the tokenizer, the weights and cards of the models.
Does not belong here: training and measuring them (`tools/reference_models`), the engine that runs a
model (`inference`), the corpus of these documents (`corpora`). Importing this room loads neither
torch nor a tokenizer library.
"""
