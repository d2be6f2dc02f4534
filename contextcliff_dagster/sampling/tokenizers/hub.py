"""Tokenizers of the Hugging Face hub: their tokenizer.json, fetched once."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import StudyError

LARGEST_FILE = 256 << 20
"""Bytes of a tokenizer.json at most."""
_FILE = "tokenizer.json"
_REPOSITORY = re.compile(r"[\w-][\w.-]*(?:/[\w-][\w.-]*)?", re.ASCII)


def is_repository(name: str) -> bool:
    """Whether ``name`` is written as a repository of the hub: ``OWNER/NAME``, or ``NAME``."""
    return len(name) <= 96 and _REPOSITORY.fullmatch(name) is not None


def hub_file(name: str) -> Path:
    """The tokenizer.json of ``hub:OWNER/NAME`` or ``hub:OWNER/NAME@REVISION``.

    From the hub's cache on this machine where it is there, so that what is at the name later
    changes no count. ``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` hold, as for
    every tool of the hub.

    Raises:
        StudyError: there is no such repository, it has no such file, or it cannot be reached.
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    repository, _, written = name.removeprefix("hub:").partition("@")
    revision = written or None
    if not is_repository(repository):
        raise StudyError(
            f"Tokenizer {name!r} names no repository of the hub; write hub:OWNER/NAME."
        )
    try:
        kept = hf_hub_download(repository, _FILE, revision=revision, local_files_only=True)
        return Path(kept).resolve()
    except (EntryNotFoundError, OSError, ValueError):
        pass
    disable_progress_bars()
    endpoint = constants.ENDPOINT
    try:
        # Asked first: a download tries for half a minute to reach a hub that is not there.
        url = hf_hub_url(repository, _FILE, revision=revision, endpoint=endpoint)
        if (get_hf_file_metadata(url, endpoint=endpoint).size or 0) <= LARGEST_FILE:
            fetched = hf_hub_download(repository, _FILE, revision=revision, endpoint=endpoint)
            return Path(fetched).resolve()
        reason = f"its {_FILE} has more than {LARGEST_FILE >> 20} MB"
    except EntryNotFoundError:
        reason = f"the repository has no {_FILE}"
    except Exception as error:  # of its HTTP client, too; none is shown: it may hold the token
        reason = _refusal(error, endpoint)
    raise StudyError(
        f"Tokenizer {name!r} cannot be had: {reason}; correct that, or name a {_FILE} on this "
        "machine as file:PATH."
    )


def _refusal(error: Exception, endpoint: str) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    host = _host(endpoint)
    if isinstance(error, GatedRepoError):
        return f"{host} gives it to some accounts alone, and HF_TOKEN is not set to one of these"
    if isinstance(error, RepositoryNotFoundError):
        return f"{host} has no such repository, or a private one that HF_TOKEN does not open"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"{host} refuses HF_TOKEN (status {status})"
    if status is not None:
        return f"{host} answers with status {status}"
    if isinstance(error, OSError) and error.strerror:
        return f"the cache of the hub cannot be written ({error.strerror}; HF_HOME)"
    return f"{host} cannot be reached ({type(error).__name__})"


def _host(endpoint: str) -> str:
    """The endpoint without a user and a password."""
    return urlsplit(endpoint).netloc.rpartition("@")[2] or "the hub"
