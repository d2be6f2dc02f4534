"""An endpoint's address and the variable of its key, as people write them; secrets are refused."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from contextcliff_dagster.cli.setup.questions import ask
from contextcliff_dagster.contracts import EngineError, StudyError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def plain_address(url: str) -> str:
    """The base URL that was meant: without the path of a call, with ``/v1`` where there is no path.

    Raises:
        StudyError: it is none, or holds a password or a key.
    """
    from contextcliff_dagster.inference.models.base_url import resolved
    from contextcliff_dagster.redaction import written_url

    url = url.strip()
    if url and "://" not in url and "${" not in url:
        url = f"http://{url}"
    url = url.rstrip("/")
    if written_url(url) != url:
        raise StudyError(
            "The address holds a password or a key, which would be written into a file: put that "
            "part into an environment variable and write ${VARIABLE} in its place."
        )
    if "${" in url:
        return url
    for call in ("/chat/completions", "/completions", "/models"):
        url = url.removesuffix(call)
    try:
        resolved("?", url)
    except EngineError:
        raise StudyError(
            f"{url or 'An empty text'} is no address; write it as http://HOST:PORT/v1."
        ) from None
    return f"{url}/v1" if not urlsplit(url).path else url


def is_here(url: str) -> bool:
    """Whether the address is of this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def asked_variable() -> str | None:
    """The variable that is typed for the key; None for no key."""
    name = ask("Environment variable that holds the key (- for none)", "-")
    if name == "-":
        return None
    check_variable(name, is_set=True)
    return name


def check_variable(name: str, *, is_set: bool) -> None:
    """Raises:
    StudyError: this is no name of a variable, or (``is_set``) one that is not set.
    """
    from contextcliff_dagster.redaction import hide_keys

    # The text is not repeated: it may be the key.
    if not _VARIABLE.fullmatch(name) or hide_keys(name) != name:
        raise StudyError(
            "The key itself is written nowhere: give the name of the environment variable that "
            "holds it, e.g. MY_KEY."
        )
    if is_set and not os.environ.get(name, "").strip():
        raise StudyError(
            f"The environment variable {name}, which is to hold the key, is not set; set it "
            f"(export {name}=...) and run the command again."
        )
