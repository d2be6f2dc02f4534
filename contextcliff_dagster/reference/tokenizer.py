"""The reference models' tokenizer: byte-level BPE with hand-written instead of learned merges.

Vocabulary: the 256 bytes (any text encodes and round-trips), every pair and triple of digits, so
that digits group in threes from the left as in current large models, the ledgers' field names as
whole tokens, and four special tokens. `build()` writes the four files that `transformers` reads;
importing this module loads no tokenizer library.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

USER, ASSISTANT, END, SYSTEM = SPECIALS = ("<|user|>", "<|assistant|>", "<|end|>", "<|system|>")
WINDOW = 8_192
"""Window of the reference models in tokens (`max_position_embeddings`)."""

NAMES = ("Ledger of day ", " SKU-", " qty=", " sub=", "Find", "Report", "State")

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|' + message['role'] + '|>' + message['content'] -}}
{{- '<|end|>' if message['role'] != 'user' else '' -}}
{%- endfor -%}
{%- if add_generation_prompt | default(false) -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def render_chat(messages: Sequence[Mapping[str, str]], *, continue_final: bool = False) -> str:
    """Render the chat template in plain Python, for engines without Jinja.

    `messages` are dicts with `role` (system, user, assistant) and `content`. The result ends with
    an open assistant turn or, with `continue_final`, inside the final assistant message (answer
    prefill). Raises ValueError for an unknown role.
    """
    text = ""
    for message in messages:
        role = message["role"]
        if role not in ("system", "user", "assistant"):
            raise ValueError(f"The reference models have no role {role!r}.")
        text += f"<|{role}|>{message['content']}" + ("" if role == "user" else END)
    return text.removesuffix(END) if continue_final else text + ASSISTANT


def _byte_symbols() -> dict[int, str]:
    """Return byte -> the printable character that represents it (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in symbols)
    symbols.update({byte: chr(256 + n) for n, byte in enumerate(others)})
    return symbols


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the vocabulary (token -> id) and the merges in order of rank."""
    symbols = _byte_symbols()
    tokens = list(SPECIALS) + [symbols[byte] for byte in range(256)]
    merges: list[tuple[str, str]] = []
    digits = "0123456789"
    pairs = [(a, b) for a in digits for b in digits]
    rank = {a + b: n for n, (a, b) in enumerate(pairs)}
    merges.extend(pairs)
    for a, b, c in itertools.product(digits, repeat=3):
        # BPE applies the lower-ranked pair first, so a triple is merged from that pair.
        merges.append((a + b, c) if rank[a + b] <= rank[b + c] else (a, b + c))
    for name in NAMES:
        spelled = [symbols[byte] for byte in name.encode()]
        merges.extend(("".join(spelled[:n]), spelled[n]) for n in range(1, len(spelled)))
    merges = list(dict.fromkeys(merges))
    tokens.extend(left + right for left, right in merges)
    return {token: n for n, token in enumerate(tokens)}, merges


def build(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into `folder`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ids, merges = vocabulary()
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges))
    digits = pre_tokenizers.Split(Regex("[0-9]{1,3}"), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "additional_special_tokens": [USER, ASSISTANT, SYSTEM],
        "model_max_length": WINDOW,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
