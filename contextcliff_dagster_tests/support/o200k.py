"""The tokenizer of most studies, once for all tests: it takes a hundred megabytes each time."""

from __future__ import annotations

from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

O200K = open_tokenizer("tiktoken:o200k_base")
