"""A model of the models file as text in, text out: one prompt at a time, kept in no ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from contextcliff_dagster.contracts import EngineError
from contextcliff_dagster.inference.engines.base import Decoding, RejectedError
from contextcliff_dagster.inference.engines.session import EngineSession
from contextcliff_dagster.inference.execution.single_request import ask
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.recipe import Message, Prompt
from contextcliff_dagster.retry import QUESTIONS, TransientError, retry

Mode = Literal["chat", "completion"]


class NamedModel:
    """A started model."""

    def __init__(self, session: EngineSession, max_output_tokens: int, mode: Mode) -> None:
        self._session, self._tokens, self._mode = session, max_output_tokens, mode

    def complete(self, prompt: str) -> str:
        """Return the model's reply.

        Raises:
            EngineError: the model refuses the prompt, or gives no answer; one sentence.
        """
        chat = self._mode == "chat"
        messages = (Message("user", prompt),) if chat else ()
        name, asked = self._session.entry.name, Prompt(self._mode, messages, "" if chat else prompt)
        try:
            return self._session.submit(self._answer(asked)).result()
        except RejectedError as error:
            raise EngineError(f"Model {name!r} refuses the prompt: {error}.") from None
        except TransientError as error:
            raise EngineError(f"Model {name!r} gives no answer: {error}.") from None

    async def _answer(self, prompt: Prompt) -> str:
        engine = self._session.engine
        count, window = await engine.count_prompt_tokens(prompt), engine.window_tokens
        if count and window and count.tokens + self._tokens > window:
            raise RejectedError(
                f"its {count.tokens:,} tokens and {self._tokens} of output are more than the "
                f"window of {window:,}"
            )
        decoding = Decoding(self._tokens)
        return (await retry(lambda: ask(engine, prompt, decoding), QUESTIONS)).text


@contextmanager
def named_model(name: str, max_output_tokens: int, mode: Mode) -> Iterator[NamedModel]:
    """Give the model of that name, started for as long as this is open.

    Raises:
        StudyError: there is no such model.
        EngineError: it cannot be started.
    """
    with EngineSession(get_model(name)) as session:
        yield NamedModel(session, max_output_tokens, mode)
