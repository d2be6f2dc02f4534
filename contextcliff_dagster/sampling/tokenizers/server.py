"""Token counts from a running server (vLLM, llama.cpp, KoboldCpp), cached per text.

No text is sent twice: counts are cached in one SQLite file of the store (`TokenCounts`). It may be
deleted at any time; while it cannot be read or written, texts are counted again.

The request formats (documentation: vLLM, "OpenAI-Compatible Server", Tokenizer API; llama.cpp,
tools/server/README.md, POST /tokenize; KoboldCpp, POST /api/extra/tokencount)::

    {"model": ..., "prompt": TEXT, "add_special_tokens": false}   -> {"count": N, "tokens": [...]}
    {"content": TEXT, "add_special": false, "parse_special": true} -> {"tokens": [...]}
    {"prompt": TEXT, "special": false} -> {"value": N, "ids": [...]}

Only the text is counted, without special tokens around it; a special token spelled out in the text
counts as that token, as it does in a prompt. There is no fallback to local counting.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from contextcliff_dagster.contracts import StudyError
from contextcliff_dagster.retry import QUESTIONS, TransientError, retry_after_s, retry_blocking
from contextcliff_dagster.store import store_root

_PROSE = (
    "The lighthouse keeper's log for 3 March 1887 records 14,250 waves, two brigs and no wind. ",
    "It's what they'd've said, I'm sure: we'll see, you're late, she doesn't mind. ",
    "IT'S THEY'LL DON'T You'Re We'vE camelCaseWord HTTPServerError snake_case_name kebab-case ",
    "Der Flußübergang bei Öhringen ist für Fußgänger gesperrt; l'été, où ça? ¿Qué más, señor? ",
    "Žluťoučký kůň úpěl; Zażółć gęślą jaźń; Ελληνικά και πάλι; Съешь ещё этих булок. ",
    "السلام عليكم ورحمة الله، كيف الحال؟ ١٢٣٤٥ — עברית עם נִקּוּד, שלום עולם. ",
    "สวัสดีครับ วันนี้อากาศดีมาก ๆ ขอบคุณ — ភាសាខ្មែរ — ລາວ — မြန်မာ ",
    "हिन्दी में लिखा हुआ वाक्य, संख्या १२३४; தமிழ் எழுத்து; বাংলা ভাষা; ਪੰਜਾਬੀ ",
    "東京は今日も晴れです。カタカナとひらがな、漢字。你好,世界!汉语没有空格。한국어 문장입니다. ",
)

_CODE = (
    "def f(x: int = 0x1F, *args, **kw) -> dict[str, list[int]]:\n    return {'a': [x, -1.5e-3]}\n",
    "\tif (a&&b||!c) { return a->b[i++] ^ ~0xFFu; }  // ok\r\n\t}\r\n\r\n",
    "SELECT COUNT(*) FROM t WHERE a<>'b' AND c>=1_000;--\n<div class=\"x\">&nbsp;</div>\n",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org C:\\path\\file.txt $HOME/.config/*~\n",
    "$$\\frac{\\partial^2 f}{\\partial x^2} = \\sum_{i=0}^{\\infty} \\alpha_i$$ ∀x∈ℝ: ⌈x⌉ ≥ x\n",
)

_SIGNS = (
    "🙂😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇫🇷❤️‍🔥✈︎☎️ 1️⃣ #️⃣",
    "e\u0301 é a\u030a\u0323 ﬁ ﬀ Ǆ ǅ ǆ ß ẞ İ ı ſ K Å ²½Ⅷ①٣৪〇",
    "'ſ it'ſ IT'ſ 'S 's ’s ‘quoted’ “double” «guillemets» „unten“",
    "zero\u200bwidth\u200cnon\u200djoin\u2060word\ufeffbom\u00adsoft\u00a0hard\u202frtl\u202e.",
    "a\x00b\x01c\x07d\x08e\x0bf\x0cg\x1bh\x1fi\x7fj\x80k\x85l\u2028m\u2029n",
    "\ufffd\ufffe\uffff\U0001f600\U000e0041\U0010ffff𝒜𐐀𠀀",
    "<|endoftext|><|im_start|>user<|im_end|><|fim_prefix|><s></s>[INST][/INST]<unk><pad>[CLS]",
)

_RUNS = (
    *(f"x{' ' * n}y" for n in (1, 2, 3, 7, 16, 81, 300)),
    *(f"{sign * n}" for sign in "\n\t0a=-_." for n in (2, 9, 70, 400)),
    *(f"{'9' * n} {'1' * n}." for n in (1, 2, 3, 4, 7, 20)),
    " \n \n\n  \n\t\n \t x\n\n\n  y  \n",
    "\r\n\r\n \r\n\n\r \r\r\n",
    "  leading and trailing  ",
    "a b  c   d    e     f",
    "word" * 60,
    "AbCdE" * 60,
    "ab1" * 60,
    "ก" * 120,
    "中" * 120,
    "🙂" * 60,
    "\u0301" * 40,
    "'s" * 40,
    "\u00a0" * 40,
)


def whole(text: str) -> str:
    """Return ``text`` as valid Unicode, as tiktoken does: join surrogate pairs, replace halves."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


CHECK_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "a",
    *_PROSE,
    *_CODE,
    *_SIGNS,
    *_RUNS,
    "".join(_PROSE),
    "".join(_CODE),
    " ".join((*_PROSE, *_SIGNS, *_CODE)),
)
"""Texts on which equivalent tokenizers have differed: scripts, spaces, digits, and transitions.

The list is short on purpose, because a fast counter is compared with its reference library on it at
every load. All texts were written for this purpose.
"""

_AT_ONCE = 500
_BUSY_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS counts (
    tokenizer TEXT NOT NULL, text_sha256 BLOB NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (tokenizer, text_sha256)
) WITHOUT ROWID
"""


class TokenCounts:
    """A cache of counts, keyed by tokenizer fingerprint and SHA-256 of the text's UTF-8 bytes.

    ``path``: the file; None: the one in the environment's store.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or store_root() / "token_counts.sqlite"
        self._lock = threading.Lock()

    def get(self, tokenizer: str, digests: Sequence[bytes]) -> dict[bytes, int]:
        """Return digest -> token count for those digests that are cached."""
        counts: dict[bytes, int] = {}
        if not self._path.exists():
            return counts
        with suppress(sqlite3.Error, OSError), self._opened() as database:
            for start in range(0, len(digests), _AT_ONCE):
                some = digests[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                counts.update(
                    database.execute(
                        "SELECT text_sha256, tokens FROM counts WHERE tokenizer = ? "
                        f"AND text_sha256 IN ({marks})",
                        (tokenizer, *some),
                    )
                )
        return counts

    def put(self, tokenizer: str, digest: bytes, tokens: int) -> None:
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._opened() as database:
                row = (tokenizer, digest, tokens)
                database.execute("INSERT OR REPLACE INTO counts VALUES (?, ?, ?)", row)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS)
            try:
                database.execute("PRAGMA synchronous = OFF")  # a cache: losing it is harmless
                database.execute(_TABLE)
                with database:
                    yield database
            finally:
                database.close()


AT_ONCE = 4
"""Requests in flight; few, so that counting leaves room for the server's other users."""
_START_SECONDS = 15.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOST_OF_A_REPLY, _BYTES_A_BYTE, _TOKENS_BESIDES = 16 << 20, 32, 64
"""Limits on a reply: bytes, extra bytes per request byte, tokens beyond the text's bytes."""
_IDENTIFYING = ("id", "root", "meta")
"""Fields of a model in /v1/models that distinguish vocabularies."""
_PROBE = " ".join(CHECK_TEXTS[3:24])
"""A text whose token ids tell vocabularies apart, whatever a server calls its model."""


class ServerTokenizer:
    """Tokenizer that calls ``<url>/tokenize``, next to the ``/v1`` of an OpenAI-compatible server.

    ``model``: which of its models to use; None selects its only one. ``headers`` and ``query`` are
    sent with every request, a key or an API version for instance, and never shown.

    Raises:
        StudyError: the server cannot be reached, has no ``/tokenize``, or has several models and
            none was named.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        model: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: str = "",
        timeout_s: float = 600.0,
    ) -> None:
        self.name = name
        self._root = _checked(name, url)
        self._headers = {"Content-Type": "application/json", "User-Agent": "contextcliff"}
        self._headers |= dict(headers or {})
        self._query = f"?{query}" if query else ""
        self._timeout_s = timeout_s
        self._opener = build_opener(_StayHere)
        listed = self._listed(model)
        self.model = str(model or listed.get("id") or "")
        self.form, ids = self._find_form()
        identifying = {key: listed[key] for key in _IDENTIFYING if listed.get(key) is not None}
        content = json.dumps([identifying or self.model, ids], sort_keys=True, ensure_ascii=False)
        self.fingerprint = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
        self._counts = TokenCounts()

    @property
    def counted_by(self) -> str:
        """The server, its kind and its model."""
        return f"the server at {self._root} ({self.form}), model {self.model}"

    def count(self, text: str) -> int:
        """Count the tokens of one text; see `count_many`."""
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return one count per text; only texts not yet counted for this model are sent.

        Raises:
            StudyError: the server no longer answers. The counts so far are kept.
        """
        texts = [whole(text) for text in texts]
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        counts = self._counts.get(self.fingerprint, digests)
        new_texts = {d: text for d, text in zip(digests, texts, strict=True) if d not in counts}
        if new_texts:
            pool = ThreadPoolExecutor(min(AT_ONCE, len(new_texts)))
            try:
                new_counts = pool.map(self._counted, new_texts.values())
                for digest, tokens in zip(new_texts, new_counts, strict=True):
                    counts[digest] = tokens
                    self._counts.put(self.fingerprint, digest, tokens)
            finally:
                pool.shutdown(cancel_futures=True)
        return [counts[digest] for digest in digests]

    def _listed(self, model: str | None) -> dict[str, Any]:
        """Return the model's entry in /v1/models; {} if the server has no such endpoint."""
        answer = self._ask("/v1/models", None, _START_SECONDS, absent=(400, 404, 405, 501))
        data = answer.get("data") if isinstance(answer, dict) else None
        listed = [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        mine = [item for item in listed if model is None or item.get("id") == model]
        if model is None and len(mine) > 1:
            names = ", ".join(str(item.get("id")) for item in mine[:8])
            raise StudyError(
                f"Tokenizer {self.name!r}: {self._root} serves several models ({names}); write "
                "the one you mean into models.yaml and name it as server:<model>."
            )
        # A server with one model answers to any name.
        return (mine or (listed if len(listed) == 1 else [{}]) or [{}])[0]

    def _find_form(self) -> tuple[str, list[int]]:
        """Return this server's request format for counting, and the tokens of `_PROBE`."""
        for form in _FORMS:
            absent = (400, 404, 405, 415, 422, 501)
            if tokens := self._tokens(form, _PROBE, _START_SECONDS, absent):
                return form, tokens
        raise StudyError(
            f"Tokenizer {self.name!r}: {self._root} does not count tokens (it has no /tokenize as "
            "vLLM and llama.cpp have, nor KoboldCpp's count); give the model's tokenizer as "
            "file:<its tokenizer.json> or tiktoken:<encoding> instead."
        )

    def _counted(self, text: str) -> int:
        if not text:
            return 0  # some servers refuse it
        tokens = self._tokens(self.form, text, self._timeout_s)
        if not tokens:
            self._fail("answers /tokenize without tokens")
        return len(tokens)

    def _tokens(
        self, form: str, text: str, within_s: float, absent: tuple[int, ...] = ()
    ) -> list[int]:
        """Return the ids of the text's tokens; empty if the reply does not match this format."""
        path, key, options, ids = _FORMS[form]
        body = {**options, key: text, **({"model": self.model} if self.model else {})}
        data = json.dumps(body, ensure_ascii=False).encode()
        answer = self._ask(path, data, within_s, absent)
        tokens = answer.get(ids) if isinstance(answer, dict) else None
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            return []
        if len(tokens) > len(data) + _TOKENS_BESIDES:  # more tokens than bytes
            return []
        return tokens if form != "vLLM" or answer.get("count") == len(tokens) else []

    def _ask(
        self, path: str, data: bytes | None, within_s: float, absent: tuple[int, ...] = ()
    ) -> Any:
        """Return the JSON at ``path``; None if its status is in ``absent`` or it is not JSON."""
        request = Request(self._root + path + self._query, data, self._headers)

        def once() -> Any:
            try:
                with self._opener.open(request, timeout=within_s) as reply:
                    return json.loads(_read(reply, len(data or b"")))
            except HTTPError as error:
                error.close()
                if error.code in absent:
                    return None
                if error.code in (401, 403):
                    self._fail(f"refuses the request (status {error.code})", "check its key")
                what = f"answers with status {error.code}"
                if error.code not in _BUSY:
                    self._fail(what)
                wait_s = retry_after_s({name.lower(): v for name, v in error.headers.items()})
                raise TransientError(what, status=error.code, retry_after_s=wait_s) from None
            except (json.JSONDecodeError, RecursionError):
                return None
            except (URLError, HTTPException, OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                what = f"does not answer ({type(reason).__name__})"
                if isinstance(reason, ConnectionRefusedError):
                    self._fail(what)
                raise TransientError(what) from None

        try:
            return retry_blocking(once, QUESTIONS)
        except TransientError as error:
            self._fail(str(error))

    def _fail(self, what: str, do: str = "check that it runs and can be reached") -> NoReturn:
        raise StudyError(
            f"Tokenizer {self.name!r}: the server at {self._root} {what}; {do}, then run the same "
            "command again (its counts are kept)."
        )


class _Form(NamedTuple):
    """Request format of a kind of server: path, key for the text, options, key for the tokens."""

    path: str
    text: str
    options: Mapping[str, bool]
    tokens: str = "tokens"


_FORMS = {
    "vLLM": _Form("/tokenize", "prompt", {"add_special_tokens": False}),
    "llama.cpp": _Form("/tokenize", "content", {"add_special": False, "parse_special": True}),
    "KoboldCpp": _Form("/api/extra/tokencount", "prompt", {"special": False}, "ids"),
}


def _read(reply: Any, sent: int) -> bytes:
    """Read the body. Raises TransientError if it is too long for a request of ``sent`` bytes."""
    limit = _MOST_OF_A_REPLY + _BYTES_A_BYTE * sent
    if len(data := reply.read(limit + 1)) > limit:
        raise TransientError(f"sends more than {limit:,} bytes", again=False)
    return bytes(data)


class _StayHere(HTTPRedirectHandler):
    """Redirect handler that refuses redirects, so that a key never reaches another server."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _checked(name: str, url: str) -> str:
    """Return ``url`` without ``/v1``. Refuse a name with a secret, because reports show names."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise StudyError(
            f"Tokenizer {name.partition(':')[0]}: the address has no host, or no valid port; "
            "write it as server:http://HOST:PORT."
        )
    if "@" in parts.netloc or parts.query:
        raise StudyError(
            f"Tokenizer server:{parts.scheme}://{host}: an address with a user, password or query "
            "would show in every report; write the server into models.yaml, its key as "
            "`api_key_env`, and name it as server:<model>."
        )
    return url.partition("#")[0].rstrip("/").removesuffix("/v1")
