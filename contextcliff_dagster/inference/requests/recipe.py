"""Recipes of a study: the prompt scaffold, the decoding parameters, and the hash of both.

The scaffold is minimal and the same for every length, with the document first and the question
last, so its token overhead is constant in a study and calls about one document share their prefix.
A document shared by many prompts is encoded, hashed and counted only once, not once per call.

`Sampling` sets how tokens are drawn if a recipe asks for more than the likeliest ones.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from contextcliff_dagster.contracts import PromptMode, StudyError

NEUTRAL_WORDINGS = (
    "{question}",
    "Question: {question}",
    "The question: {question}",
    "My question: {question}",
    "Now the question: {question}",
    "Here is the question: {question}",
    "The question is this: {question}",
    "A question on the text: {question}",
    "The following is asked: {question}",
    "This is what is asked: {question}",
)
"""Wordings that announce the question in at most five words and ask for nothing: no format, no
brevity, no reasoning. The first is that of a study without replicates, so its calls stay paid; none
may be reworded, because recipe hashes depend on them: add new ones at the end."""

MARK = "\ue000the document\ue001"
"""Placeholder for the document in a prompt's outline; a question with these private-use characters
is encoded as a whole."""
_MOST_CHARS = 8_000_000
_kept: OrderedDict[str, SharedText] = OrderedDict()
_chars = 0
_keeping = threading.Lock()


class SharedText:
    """A text and cached values that are costly to derive from it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._states: dict[bytes, hashlib._Hash] = {}
        self._counts: dict[str, int] = {}
        self._counting = threading.Lock()

    @cached_property
    def json(self) -> bytes:
        """The text between the quotes of `json.dumps` with ``ensure_ascii=False``, in UTF-8."""
        import orjson

        return orjson.dumps(self.text)[1:-1]

    def within(self, outline: bytes) -> list[bytes]:
        """Return the JSON ``outline`` in pieces, with this text in the place of `MARK`.

        Raises:
            ValueError: the outline does not have the mark exactly once.
        """
        head, tail = outline.split(MARK.encode())
        return [head, self.json, tail]

    def sha256_within(self, outline: bytes) -> str:
        """Return the SHA-256 (hex) of ``b"".join(within(outline))``, hashing the start once."""
        head, text, tail = self.within(outline)
        state = self._states.get(head)
        if state is None:
            state = hashlib.sha256(head)
            state.update(text)
            self._states = {head: state}  # wordings differ behind the document, if at all
        digest = state.copy()
        digest.update(tail)
        return digest.hexdigest()

    def count(self, tokenizer: str, count: Callable[[str], int]) -> int:
        """Return the token count of the text alone under the named tokenizer."""
        with self._counting:
            if tokenizer not in self._counts:
                self._counts[tokenizer] = count(self.text)
            return self._counts[tokenizer]


def shared_text(document_id: str, load: Callable[[str], str]) -> SharedText:
    """Return a document's text; the most recent ones, up to 8 million characters, stay cached."""
    global _chars
    with _keeping:
        if document_id in _kept:
            _kept.move_to_end(document_id)
            return _kept[document_id]
    shared_document = SharedText(load(document_id))
    with _keeping:
        if document_id in _kept:  # another thread was faster
            return _kept[document_id]
        _kept[document_id] = shared_document
        _chars += len(shared_document.text)
        while _chars > _MOST_CHARS and len(_kept) > 1:
            _chars -= len(_kept.popitem(last=False)[1].text)
    return shared_document


def forget_shared_texts() -> None:
    """Clear the cache of documents' texts."""
    global _chars
    with _keeping:
        _kept.clear()
        _chars = 0


_MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for ``rounds`` answers to each prompt; round ``i`` has the seed ``seed + i``.

    ``top_k``: number of tokens to draw from, 0 for all; ``top_p``: their share of the probability.
    The temperature is the recipe's.

    Raises:
        StudyError: a value is out of its bounds.
    """

    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    rounds: int = 1

    def __post_init__(self) -> None:
        for name, holds, bounds in (
            ("top_k", self.top_k >= 0, "0 (all tokens) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 2**31 - _MOST_ROUNDS, "0 or more, and below 2,147,482,648"),
            ("rounds", 1 <= self.rounds <= _MOST_ROUNDS, f"from 1 to {_MOST_ROUNDS:,}"),
        ):
            if not holds:
                raise StudyError(f"{name} is {getattr(self, name)}; it should be {bounds}.")

    def of_all_rounds(self) -> dict[str, Any]:
        """Return the fields shared by all rounds, ready for JSON."""
        fields = asdict(self)
        del fields["seed"], fields["rounds"]
        return fields

    def seed_of(self, round_number: int) -> int:
        return self.seed + round_number


DEFAULT_TEMPLATE = "{document}\n{question}"
DEFAULT_INSTRUCTION = "{question}"
"""Default wording of a replicate; ``{question}`` stands for the example's question."""

Role = Literal["system", "user", "assistant"]
_HOTTEST = 2.0
_FIELD = re.compile(r"\{(document|question)\}")


def stable_hash(value: Any) -> str:
    """Return the SHA-256 (hex) of ``value`` as canonical JSON: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def check_template(template: str) -> None:
    """Raise StudyError unless ``{document}`` and ``{question}`` are in it exactly once each."""
    for name in ("document", "question"):
        if (times := template.count("{" + name + "}")) != 1:
            raise StudyError(
                f"The prompt template has {{{name}}} {times} times; use {{document}} and "
                f"{{question}} once each."
            )


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


class Turn(NamedTuple):
    """An earlier question of a conversation, and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt: chat ``messages``, or (mode ``completion``) plain ``text``.

    With mode ``chat_prefill`` the last message is the assistant's, begun and to be continued.
    ``document`` and ``outline`` (the prompt with `MARK` in the document's place) repeat the
    content, so that the document need not be processed for every question. ``question_first``: the
    question precedes the document. ``evidence``: start and end of each piece of evidence in the
    document, in characters, if known and wanted.
    """

    mode: PromptMode
    messages: tuple[Message, ...] = ()
    text: str = ""
    document: SharedText | None = field(default=None, compare=False, repr=False)
    outline: Prompt | None = field(default=None, compare=False, repr=False)
    question_first: bool = field(default=False, compare=False, repr=False)
    evidence: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of everything that the engine reads."""
        if self.document and self.outline:
            with suppress(ValueError):
                return self.document.sha256_within(_canonical(self.outline._read()))
        return stable_hash(self._read())

    def _read(self) -> list[Any]:
        turns = [[message.role, message.content] for message in self.messages]
        return [self.mode == "completion", self.mode == "chat_prefill", turns, self.text]

    def contents(self) -> tuple[str, ...]:
        """Return the texts without roles and template, a lower bound on what a model reads."""
        return tuple(message.content for message in self.messages) or (self.text,)

    def as_dicts(self) -> list[dict[str, str]]:
        """Return the messages in the form of the chat interfaces."""
        return [{"role": message.role, "content": message.content} for message in self.messages]


@dataclass(frozen=True)
class Recipe:
    """Settings of a call other than its document and question.

    ``template`` holds ``{document}`` and ``{question}`` once each; ``instructions`` has one wording
    per replicate, each holding ``{question}`` or standing on a line before it; ``answer_prefix`` is
    the begun answer of mode ``chat_prefill``, or the end of the prompt in mode ``completion``; it
    may hold ``{question}``.

    ``prefix_cache`` False is for times to the first token that owe nothing to an earlier call: the
    calls of one document are far apart, and an engine that can reuses nothing that it has read. The
    prompt stays as it is; to the ledger, too, such a call is another one.

    ``constrained``: the engine can write nothing but JSON that fits ``output_schema``; else a reply
    that does not fit is one.

    ``sampling``: tokens are drawn at ``temperature``, and the replicates are its rounds, all with
    the one instruction; None: the likeliest tokens.

    ``attention``: the engine reports where the prompt's last token attends, next to the answer.

    Raises:
        StudyError: a placeholder is missing or doubled, or a mode lacks what it needs.
    """

    mode: PromptMode = "chat"
    template: str = DEFAULT_TEMPLATE
    system: str | None = None
    answer_prefix: str | None = None
    instructions: tuple[str, ...] = (DEFAULT_INSTRUCTION,)
    max_output_tokens: int = 64
    temperature: float = 0.0
    output_schema: Mapping[str, Any] | None = field(default=None)
    prefix_cache: bool = True
    sampling: Sampling | None = None
    constrained: bool = False
    attention: bool = False

    def __post_init__(self) -> None:
        check_template(self.template)
        if not self.instructions:
            raise StudyError("The recipe has no instruction; give one wording per replicate.")
        if len(set(self.instructions)) != len(self.instructions):
            raise StudyError(
                "Two replicates have the same instruction; at temperature 0 that buys the same "
                "answer twice, so give each its own wording."
            )
        if self.sampling and len(self.instructions) > 1:
            raise StudyError("Rounds of sampling have one instruction; leave out `replicates`.")
        if not 0 <= self.temperature <= _HOTTEST:
            raise StudyError(
                f"The temperature is {self.temperature:g}; it should be from 0 to {_HOTTEST:g}."
            )
        if self.mode == "chat_prefill" and not self.answer_prefix:
            raise StudyError(
                "Prompt mode 'chat_prefill' needs `answer_prefix`, the beginning of the answer."
            )
        if self.mode == "chat" and self.answer_prefix:
            raise StudyError(
                "Prompt mode 'chat' takes no `answer_prefix`; use mode 'chat_prefill'."
            )
        if self.mode == "completion" and self.system:
            raise StudyError(
                "Prompt mode 'completion' has no system turn; write the text into the template."
            )
        if self.constrained and (self.output_schema is None or self.mode != "chat"):
            raise StudyError(
                "Constrained replies need `output_schema` and prompt mode 'chat'; servers take a "
                "schema there alone."
            )
        if self.max_output_tokens < 1:
            raise StudyError(
                f"max_output_tokens is {self.max_output_tokens}; it should be at least 1."
            )

    @property
    def replicates(self) -> int:
        """Number of calls per example: one per instruction, or per round of sampling."""
        return self.sampling.rounds if self.sampling else len(self.instructions)

    def instruction(self, replicate: int) -> str:
        """Return the wording of a replicate."""
        return self.instructions[0 if self.sampling else replicate]

    def _scaffold(self) -> dict[str, Any]:
        # Included only if it is off, so that calls of older recipes stay paid.
        cache_field = {} if self.prefix_cache else {"prefix_cache": False}
        sampling_field = {"sampling": self.sampling.of_all_rounds()} if self.sampling else {}
        constrained_field = {"constrained": True} if self.constrained else {}
        attention_field = {"attention": True} if self.attention else {}
        return {
            **cache_field,
            **sampling_field,
            **constrained_field,
            **attention_field,
            "mode": self.mode,
            "template": self.template,
            "system": self.system,
            "answer_prefix": self.answer_prefix,
            "max_output_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the whole recipe, ready for JSON; `from_dict` is the inverse."""
        whole = {"sampling": asdict(self.sampling)} if self.sampling else {}
        return {**self._scaffold(), **whole, "instructions": list(self.instructions)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe that `to_dict` described."""
        fields = {**data, "instructions": tuple(data["instructions"])}
        if sampling := data.get("sampling"):
            fields["sampling"] = Sampling(**sampling)
        return cls(**fields)

    @cached_property
    def body(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @cached_property
    def hash(self) -> str:
        """Hash of the part that all replicates share, and of their wordings."""
        return stable_hash(self.to_dict())

    def replicate_hash(self, replicate: int) -> str:
        """Return the hash of one replicate's request: adding a wording or a round later leaves the
        others' calls paid."""
        if replicate not in self._replicate_hashes:
            seed = {"seed": self.sampling.seed_of(replicate)} if self.sampling else {}
            request = {**self._scaffold(), **seed, "instruction": self.instruction(replicate)}
            self._replicate_hashes[replicate] = stable_hash(request)
        return self._replicate_hashes[replicate]

    @cached_property
    def _replicate_hashes(self) -> dict[int, str]:
        """Cache of the hashes computed so far, which are part of each call's key."""
        return {}

    @property
    def question_first(self) -> bool:
        """Whether the question precedes the document."""
        return self.template.index("{question}") < self.template.index("{document}")

    def render(
        self,
        document: str | SharedText,
        question: str,
        replicate: int = 0,
        turns: Sequence[Turn] = (),
    ) -> Prompt:
        """Return the prompt for one question over one document.

        Placeholders inside the document are left unchanged. ``turns``, oldest first, come before
        the question: the first of them then has the document and the replicate's wording, and later
        questions are sent unchanged.
        """
        if isinstance(document, SharedText):
            whole = self.render(document.text, question, replicate, turns)
            outline = self.render(MARK, question, replicate, turns)
            is_first = self.question_first
            return replace(whole, document=document, outline=outline, question_first=is_first)
        first, *later = [*(turn.question for turn in turns), question]
        instruction = self.instruction(replicate)
        if "{question}" in instruction:
            worded_question = instruction.replace("{question}", first)
        else:
            worded_question = f"{instruction}\n{first}"
        values = {"document": document, "question": worded_question}
        user_texts = [_FIELD.sub(lambda match: values[match[1]], self.template), *later]
        begun = [(self.answer_prefix or "").replace("{question}", text) for text in (first, *later)]
        answers = [prefix + turn.answer for prefix, turn in zip(begun, turns, strict=False)]
        if self.mode == "completion":
            before = "".join(
                f"{text}{answer}\n" for text, answer in zip(user_texts, answers, strict=False)
            )
            return Prompt("completion", text=before + user_texts[-1] + begun[-1])
        messages = [Message("system", self.system)] if self.system else []
        for text, answer in zip(user_texts, answers, strict=False):
            messages += [Message("user", text), Message("assistant", answer)]
        messages.append(Message("user", user_texts[-1]))
        if self.mode == "chat_prefill":
            messages.append(Message("assistant", begun[-1]))
        return Prompt(self.mode, tuple(messages))
