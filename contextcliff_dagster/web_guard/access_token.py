"""The token that a request must carry: in a link, then in a cookie, or as a bearer token."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from contextcliff_dagster.contracts import EngineError

TOKEN_VARIABLE = "CONTEXTCLIFF_TOKEN"
PARAMETER = "token"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token and the cookie that carries it.

    Args:
        value: the token.
        cookie: the cookie's name, None for a server that no browser opens. Cookies know no ports:
            two servers of a machine need two names.
    """

    value: str
    cookie: str | None = None

    def is_in_headers(self, authorization: str, cookies: str) -> bool:
        """Whether ``Authorization: Bearer`` or the cookie has the token."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer" and self._equals(given.strip()):
            return True
        if self.cookie is None:
            return False
        pairs = (part.strip().partition("=") for part in cookies.split(";"))
        return any(name == self.cookie and self._equals(value) for name, _, value in pairs)

    def taken_from(self, query: str) -> tuple[bool | None, str]:
        """Whether the token in a query is right (None where there is none), and the query without
        it."""
        pairs = parse_qsl(query, keep_blank_values=True)
        given = [value for name, value in pairs if name == PARAMETER]
        rest = urlencode([pair for pair in pairs if pair[0] != PARAMETER])
        return (any(map(self._equals, given)) if given else None), rest

    def set_cookie(self) -> str:
        """The header's value: sent by pages of this site alone, readable by no script."""
        return f"{self.cookie}={self.value}; Path=/; HttpOnly; SameSite=Strict"

    def _equals(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.value.encode())


def choose_token() -> tuple[str, bool]:
    """The token of ``CONTEXTCLIFF_TOKEN``, or a new one; and whether it is the variable's.

    The variable is taken away: what this process starts has no use for it.

    Raises:
        EngineError: the variable's value is short, or does not fit into a link.
    """
    own = os.environ.pop(TOKEN_VARIABLE, "")
    if not own:
        return secrets.token_urlsafe(32), False
    if not re.fullmatch(r"[A-Za-z0-9._~-]{16,}", own):
        raise EngineError(
            f"{TOKEN_VARIABLE} needs at least 16 letters, digits or any of . _ ~ -; "
            "`openssl rand -hex 16` makes a good one."
        )
    return own, True
