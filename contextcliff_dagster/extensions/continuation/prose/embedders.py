"""Embeddings of sentences, and the coherence of a text measured with them."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from contextcliff_dagster.contracts import EngineError, pip_install
from contextcliff_dagster.extensions.continuation.prose.words import Prose
from contextcliff_dagster.retry import QUESTIONS, TransientError, retry, retry_after_s

_BATCH = 64
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class Embedder(Protocol):
    """Interface of a sentence embedder; ``name`` is written to results."""

    @property
    def name(self) -> str: ...

    def embed(self, sentences: Sequence[str]) -> NDArray[np.floating[Any]]:
        """Return a row for each sentence; raise EngineError if embeddings are unavailable."""
        ...


class StaticEmbedder:
    """Embedder that averages the vectors of a sentence's word pieces (package wordllama, MIT).

    It has 32,000 pieces and 256 dimensions. Only the package's two files are used, not its code.
    """

    name = "wordllama l2_supercat_256"

    def __init__(self, folder: Path) -> None:
        """Load the files; raise EngineError if they are damaged."""
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            self._vectors = load_file(folder / _WEIGHTS)["embedding.weight"].astype(np.float32)
            self._tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        except Exception as error:  # both libraries raise classes of their own, and plain ones
            raise EngineError(
                f"Embeddings by {self.name!r} are unavailable (its files in {folder} are damaged); "
                f"run {pip_install('--force-reinstall', '--no-deps', 'wordllama')}."
            ) from error

    def embed(self, sentences: Sequence[str]) -> NDArray[np.floating[Any]]:
        """Return a row for each sentence; it is all zeros if the sentence has no word pieces."""
        rows = np.zeros((len(sentences), self._vectors.shape[1]), np.float32)
        encoded = self._tokenizer.encode_batch(list(sentences), add_special_tokens=False)
        for row, encoding in zip(rows, encoded, strict=True):
            if encoding.ids:
                row[:] = self._vectors[encoding.ids].mean(axis=0)
        return rows


def local_embedder() -> StaticEmbedder | None:
    """Return the local embedder, or None without the extra; raise EngineError if damaged."""
    folder = local_files()
    return None if folder is None else StaticEmbedder(folder)


def local_files() -> Path | None:
    """Return the folder of `StaticEmbedder`'s files, or None without the extra ``embeddings``."""
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    complete = (folder / _WEIGHTS).is_file() and (folder / _TOKENIZER).is_file()
    return folder if complete else None


class EndpointEmbedder:
    """Embedder that calls an OpenAI-compatible ``/embeddings``; ``base_url`` ends in ``/v1``."""

    def __init__(
        self, base_url: str, model: str, key: str | None = None, timeout_s: float = 120.0
    ) -> None:
        self._base_url, self.name, self._timeout_s = base_url, model, timeout_s
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def embed(self, sentences: Sequence[str]) -> NDArray[np.floating[Any]]:
        """Return a row for each sentence, requested in batches of 64."""
        return asyncio.run(self._embed(sentences))

    async def _embed(self, sentences: Sequence[str]) -> NDArray[np.floating[Any]]:
        from contextcliff_dagster.inference.engines.openai.http_client import Endpoint

        endpoint = Endpoint(self._base_url, self._headers, timeout_s=self._timeout_s, connections=1)
        try:
            rows: list[Any] = []
            for start in range(0, len(sentences), _BATCH):
                batch = list(sentences[start : start + _BATCH])
                rows += await retry(lambda batch=batch: self._ask(endpoint, batch), QUESTIONS)  # type: ignore[misc]
        except TransientError as error:
            raise self._failed(str(error)) from None
        finally:
            await endpoint.close()
        return np.array(rows, np.float32)

    async def _ask(self, endpoint: Any, batch: list[str]) -> list[Any]:
        import aiohttp
        import orjson

        from contextcliff_dagster.inference.engines.openai.http_client import OversizedError

        body = orjson.dumps({"model": self.name, "input": batch})
        try:
            reply = await endpoint.ask("/embeddings", [body], within_s=self._timeout_s)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransientError(type(error).__name__) from None
        except OversizedError as error:
            raise self._failed(str(error)) from None
        if reply.status == 429 or reply.status >= 500:
            wait = retry_after_s(reply.headers)
            raise TransientError(f"status {reply.status}", status=reply.status, retry_after_s=wait)
        if reply.status != 200:
            raise self._failed(f"status {reply.status}")
        try:
            items = sorted(reply.json()["data"], key=lambda item: item["index"])
            rows = [item["embedding"] for item in items]
            whole = np.isfinite(np.array(rows, np.float64)).all() and len(rows) == len(batch)
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise self._failed("the answer does not have one vector for each sentence")
        return rows

    def _failed(self, problem: str) -> EngineError:
        return EngineError(
            f"Embeddings by {self.name!r} are unavailable ({problem}); check the server, name "
            "another, or measure without embeddings."
        )


FAR = 5
"""Distance, in sentences, between the sentences compared for far coherence."""
_LEAST_PAIRS = 2


class Coherence(NamedTuple):
    """Mean cosine, -1..1, of the embeddings of neighbouring sentences (``near``) and of sentences
    five apart (``far``); None with fewer than two pairs."""

    near: float | None
    far: float | None


def coherence_of_texts(texts: Sequence[Prose], embedder: Embedder) -> list[Coherence]:
    """Return the coherence of each text; all their sentences go to the embedder at once.

    Sentences whose embedding has length 0 are left out. Raise EngineError without embeddings.
    """
    sentences = [prose.sentences() for prose in texts]
    # Too few sentences for two pairs are not embedded.
    sentences = [group if len(group) > _LEAST_PAIRS else [] for group in sentences]
    bounds = [0, *accumulate(map(len, sentences))]
    if not bounds[-1]:
        return [Coherence(None, None) for _ in texts]
    rows = np.asarray(embedder.embed([prose for group in sentences for prose in group]), np.float64)
    return [_coherence(rows[a:b]) for a, b in pairwise(bounds)]


def _coherence(vectors: NDArray[np.floating[Any]]) -> Coherence:
    size = np.linalg.norm(vectors, axis=1)
    vectors = vectors[size > 0] / size[size > 0, None]
    near, far = ((vectors[gap:] * vectors[:-gap]).sum(axis=1) for gap in (1, FAR))
    return Coherence(*(float(of.mean()) if len(of) >= _LEAST_PAIRS else None for of in (near, far)))
