"""The gate: passes, refuses or reroutes a request, depending on the length of its prompt.

Prompts are read from the bodies of OpenAI's chat completions, completions and responses, and of
Anthropic's messages, as their API references describe them. All text counts, of every message, of
system text and of tools: a request does not say which part is the document.
"""

from __future__ import annotations

import json
import threading
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from contextcliff_dagster.contracts import ContextCliffError, level, pip_install
from contextcliff_dagster.gateway.settings import GateMetrics, GateSettings, PolicyFile, log
from contextcliff_dagster.policy import PolicyError, SafeContext

if TYPE_CHECKING:
    from contextcliff_dagster.sampling.tokenizers.tokenizers import Tokenizer

_SENT = "messages", "system", "instructions", "input", "suffix", "documents", "extra_body"
_SENT_AS_JSON = (
    "tools", "functions", "response_format", "text", "output_format", "output_config",
    "chat_template", "chat_template_kwargs",
)  # fmt: skip
"""Members that chat templates write to the prompt as JSON with names, and the templates."""
_ELSEWHERE = "previous_response_id", "conversation", "prompt_id", "prompt_embeds"
"""Members by which the server adds text that the request does not show."""
_LABELS = {"role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "status", "detail"}
_LABELS |= {"media_type"}
_LONGEST_LABEL = 64
"""Maximum characters of a label; a longer one counts as text, because templates write any role."""
_NEVER_READ = {"cache_control", "signature", "encrypted_content"}
_NO_TEXT = {"image", "image_url", "input_image", "audio", "input_audio", "video_url", "file"}
_NO_TEXT |= {"input_file", "container_upload", "item_reference", "computer_screenshot"}
_DATA = _NO_TEXT | {"source", "data", "url", "file_data", "file_id", "file_url"}
"""Members of a non-text part that are skipped; text next to them is counted."""
_IN_PLACE = "text", "content"
"""Source types of a document whose text is included in the request."""
_ARGUMENTS = {"input", "arguments"}
"""Members with a tool call's arguments; the model reads their names, too."""
_FRAME, _FREE_FRAMES = 5, 2
"""Tokens that templates put around a message, and the messages of a measured prompt (free)."""


class Prompt(NamedTuple):
    """The texts of a request's prompt, or of each of its prompts.

    ``token_ids`` is the length of the longest prompt that is given as the model's token ids;
    ``unseen`` names a part that cannot be counted; ``frame_tokens`` are the tokens that common
    templates put around many messages.
    """

    texts: list[list[str]]
    token_ids: int = 0
    unseen: str | None = None
    frame_tokens: int = 0


def prompt_of(body: Mapping[str, Any]) -> Prompt:
    """Read the prompt from a request's JSON body; ignore the case of names, as some servers do."""
    sent = {name.casefold(): value for name, value in body.items()}
    texts: list[str] = []
    unseen = next((name for name in _ELSEWHERE if sent.get(name)), None)
    for name in _SENT:
        for part in _texts(sent.get(name)):
            if isinstance(part, str):
                texts.append(part)
            else:
                unseen = part.kind
    texts += [_as_json(sent[name]) for name in _SENT_AS_JSON if sent.get(name)]
    lists = [sent[name] for name in ("messages", "input") if isinstance(sent.get(name), list)]
    frames = max(0, sum(map(len, lists)) - _FREE_FRAMES) * _FRAME
    member = sent.get("prompt")
    prompts, ids = [texts], 0
    if isinstance(member, str):
        prompts = [[*texts, member]]
    elif isinstance(member, list):
        written = [prompt for prompt in member if isinstance(prompt, str)]
        rows = [row for row in member if isinstance(row, list)]
        prompts = [[*texts, prompt] for prompt in written] or prompts
        ids = max(map(len, rows)) if rows else len(member) - len(written)
    elif member:  # a prompt that the server has stored
        unseen = "prompt"
    return Prompt(prompts, ids, unseen, frames)


class _NoText(NamedTuple):
    kind: str


def _texts(value: Any) -> Iterator[str | _NoText]:
    """Yield every text in ``value``, except labels such as a role; and the non-text parts."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, Mapping):
            kind = str(part.get("type"))[:_LONGEST_LABEL]
            source = part.get("source")
            elsewhere = isinstance(source, Mapping) and source.get("type") not in _IN_PLACE
            no_text = kind in _NO_TEXT or elsewhere
            if no_text or part.get("encrypted_content"):
                yield _NoText(kind)
            for name, text in part.items():
                if name in _NEVER_READ or (no_text and name in _DATA):
                    continue
                label = name in _LABELS and isinstance(text, str)
                if name in _ARGUMENTS and isinstance(text, Mapping):
                    yield _as_json(text)
                elif not label or len(text) > _LONGEST_LABEL:
                    waiting.append(text)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def upper_bound(text: str) -> int:
    """Return an upper bound of the tokens of ``text`` for tokenizers with a byte or more per token.

    It is the UTF-8 bytes of the text or of its NFKC form if that is longer (some tokenizers
    normalise), and one for the mark that some put in front. Byte-level BPE, and SentencePiece with
    byte fallback, never make more.
    """
    if text.isascii():
        return len(text) + 1
    forms = (text, unicodedata.normalize("NFKC", text), unicodedata.normalize("NFKD", text))
    return max(len(form.encode("utf-8", "surrogatepass")) for form in forms) + 1


Outcome = Literal["passed", "refused", "routed", "no_policy", "uncounted", "expired"]
_TRY_AGAIN_S = 60.0
"""Seconds until a failed tokenizer is tried again, because it may depend on a server."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome for a request; ``error`` is a refusal's JSON body, ``model`` a route's target."""

    outcome: Outcome
    error: dict[str, Any] | None = None
    model: str | None = None


class _Count(NamedTuple):
    tokens: int
    by: Literal["tokenizer", "upper_bound"]


class Gate:
    """A gate that checks requests against the policies of one file, and counts the outcomes.

    Raises:
        PolicyError: a setting is wrong, a policy is unusable, or its tokenizer cannot be opened.
    """

    def __init__(self, settings: GateSettings, meter_provider: Any = None) -> None:
        self.settings = settings
        self._file = PolicyFile(settings.policy)
        self._metrics = GateMetrics(meter_provider)
        self._tokenizers = _Tokenizers()
        self._warned: set[str] = set()
        if settings.count == "bytes":
            self._warn(f"Prompts are counted by an upper bound (`count: bytes`): {_BY_BYTES}.")
            return
        for policy in self._file.policies().values():
            try:
                self._counted(policy, [""])
            except ContextCliffError as error:
                raise PolicyError(
                    f"The gateway cannot count prompts for {policy.model}: "
                    f"{str(error).rstrip('.')}; else set `tokenizers` to its file on this machine, "
                    f"or `count: bytes`, by which {_BY_BYTES}."
                ) from error

    def decide(self, body: Any, unseen: str | None = None, *, route: bool = True) -> Decision:
        """Decide on a request with this JSON body; counting may take milliseconds.

        ``unseen`` names a reason why the model may read something other than ``body``, if any.
        Without ``route``, a prompt above the cap is refused instead of routed to another model.
        """
        names = {name.casefold(): name for name in body} if isinstance(body, Mapping) else {}
        model = body[names["model"]] if "model" in names else None
        if not isinstance(model, str):
            why = "its length cannot be checked against a safe cap"
            return self._unchecked(
                "uncounted", None, f"The request's body is no JSON object with a model: {why}."
            )  # fmt: skip
        policy = self._policy(model)
        if policy is None:
            return self._unchecked(
                "no_policy", None, f"There is no safe cap for the model {model!r}; measure it, or "
                "name one that has been measured."
            )  # fmt: skip
        if (expired := self._expired(policy)) is not None:
            return expired
        prompt = prompt_of(body)
        count = self._count(policy, prompt)
        cap = policy.safe_cap_tokens + self.settings.allowance_tokens
        self._metrics.measured(count.tokens / cap, policy.model, count.by)
        own_cap = policy.cap_prompt_tokens
        if count.tokens > cap or (own_cap is not None and prompt.token_ids > own_cap):
            return self._above(policy, prompt, count, route=route)
        if own_cap is None and prompt.token_ids:
            unseen = "token ids"
        unseen = unseen or prompt.unseen
        if unseen:
            return self._unchecked(
                "uncounted", policy.model, f"The request sends {unseen!r}, whose length in tokens "
                f"cannot be checked against the safe cap of {policy.model}; send its text."
            )  # fmt: skip
        return self._done("passed", policy.model)

    def _policy(self, model: str) -> SafeContext | None:
        return self._file.policies().get(self.settings.models.get(model, model))

    def _expired(self, policy: SafeContext) -> Decision | None:
        if not _past(policy):
            return None
        what = (
            f"The policy of {policy.model} expired on {policy.expiry} (measured {policy.date}); "
            f"measure again with `contextcliff campaign new {policy.study or 'STUDY'}` and export "
            "a new one."
        )
        self._warn(what)
        self._metrics.expired(policy.model)
        if self.settings.expired == "enforce":
            return None
        if self.settings.expired == "pass":
            return self._done("expired", policy.model)
        return self._done("expired", policy.model, _error(what, "policy_expired", policy))

    def _count(self, policy: SafeContext, prompt: Prompt) -> _Count:
        """Count the longest text's tokens with the policy's tokenizer, or use an upper bound."""
        frames = prompt.frame_tokens
        bound = frames + max(sum(map(upper_bound, texts)) for texts in prompt.texts)
        cap = policy.safe_cap_tokens + self.settings.allowance_tokens
        if bound <= cap or self.settings.count == "bytes":
            return _Count(bound, "upper_bound")
        try:
            longest = frames + max(self._counted(policy, texts) for texts in prompt.texts)
        except ContextCliffError as error:  # a server that counts, or a new policy's tokenizer
            bytes_count = f"are counted by an upper bound, by which {_BY_BYTES}"
            self._warn(f"Prompts for {policy.model} {bytes_count}: {error}")
            return _Count(bound, "upper_bound")
        return _Count(longest, "tokenizer")

    def _counted(self, policy: SafeContext, texts: list[str]) -> int:
        where, opened = self.settings.tokenizers.get(policy.model), self._tokenizers.opened
        return sum(policy.count(text, where, opened) for text in texts)

    def _above(
        self, policy: SafeContext, prompt: Prompt, count: _Count, *, route: bool
    ) -> Decision:
        tried = {policy.model}
        model = self.settings.route_to.get(policy.model) if route else None
        while model is not None:
            other = self._policy(model)
            if other is None or not (self._lapsed(other) or self._too_long(other, prompt)):
                log.info("A prompt above the cap of %s goes to %s.", policy.model, model)
                self._metrics.counted("routed", policy.model)
                return Decision("routed", model=model)
            tried.add(other.model)
            following = self.settings.route_to.get(other.model)
            model = following if following not in tried else None
        model_cap = policy.cap_prompt_tokens
        if model_cap is not None and prompt.token_ids > model_cap:
            size, cap = f"{prompt.token_ids:,} tokens of the model is", model_cap
        elif count.by == "tokenizer":
            size, cap = f"{count.tokens:,} tokens ({policy.tokenizer}) is", policy.safe_cap_tokens
        else:
            size, cap = f"at most {count.tokens:,} tokens by bytes may be", policy.safe_cap_tokens
        allowed = self.settings.allowance_tokens
        more = f" and {allowed:,} besides the document" if allowed else ""
        message = (
            f"A prompt of {size} above the safe cap of {cap:,}{more} for {policy.model} on the "
            f"task {policy.task or 'of its study'}, measured {policy.date}: beyond it a loss of "
            f"{level(policy.tolerance)} is not ruled out at {level(policy.confidence)} confidence; "
            "shorten or split it."
        )
        tokens = max(count.tokens, prompt.token_ids)
        error = _error(message, "context_length_exceeded", policy, tokens=tokens, cap_tokens=cap)
        return self._done("refused", policy.model, error)

    def _too_long(self, policy: SafeContext, prompt: Prompt) -> bool:
        cap = policy.safe_cap_tokens + self.settings.allowance_tokens
        model_cap = policy.cap_prompt_tokens
        ids = model_cap is not None and prompt.token_ids > model_cap
        return ids or self._count(policy, prompt).tokens > cap

    def _lapsed(self, policy: SafeContext) -> bool:
        return self.settings.expired == "refuse" and _past(policy)

    def _unchecked(self, outcome: Outcome, model: str | None, why: str) -> Decision:
        refused = self.settings.unknown == "refuse"
        return self._done(outcome, model, _error(why, "not_certified") if refused else None)

    def _done(
        self, outcome: Outcome, model: str | None, error: dict[str, Any] | None = None
    ) -> Decision:
        refused = "_refused" if error is not None and outcome != "refused" else ""
        self._metrics.counted(f"{outcome}{refused}", model)
        return Decision(outcome, error)

    def _warn(self, sentence: str) -> None:
        """Log each warning only once, because a gateway handles thousands of calls per minute."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning(sentence)


def _past(policy: SafeContext) -> bool:
    return datetime.now(UTC).date() > date.fromisoformat(policy.expiry)


_BY_BYTES = "each byte of UTF-8 is a token, and English is refused from about a quarter of the cap"


class _Tokenizers:
    """Tokenizers, each opened once; one that cannot be opened is not retried at every call."""

    def __init__(self) -> None:
        self._opened: dict[str, Tokenizer] = {}
        self._failed: dict[str, tuple[float, ContextCliffError]] = {}
        self._lock = threading.Lock()

    def opened(self, name: str) -> Tokenizer:
        with self._lock:
            if (tokenizer := self._opened.get(name)) is not None:
                return tokenizer
            at, error = self._failed.get(name, (0.0, None))
            if error is not None and time.monotonic() < at + _TRY_AGAIN_S:
                raise error
            try:
                self._opened[name] = _open(name)
            except ContextCliffError as failed:
                self._failed[name] = time.monotonic(), failed
                raise
            return self._opened[name]


def _open(name: str) -> Tokenizer:
    try:
        from contextcliff_dagster.sampling.tokenizers.tokenizers import open_tokenizer

        tokenizer = open_tokenizer(name)
        tokenizer.count("a")  # imports what opening does not
        return tokenizer
    except ImportError as error:
        needed = ("tiktoken", "bpe-openai") if name.startswith("tiktoken:") else (str(error.name),)
        raise PolicyError(
            f"The tokenizer {name!r} needs the package {error.name!r}; run {pip_install(*needed)}."
        ) from error


def _error(
    message: str, code: str, policy: SafeContext | None = None, **counts: int
) -> dict[str, Any]:
    """Return an error body for OpenAI's and Anthropic's clients: both read ``error.message``."""
    about: dict[str, Any] = dict(counts)
    if policy is not None:
        about |= {"model": policy.model, "task": policy.task, "policy_date": policy.date}
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return {"type": "error", "error": {**error, "contextcliff": about}}
