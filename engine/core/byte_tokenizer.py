"""A tokenizer without files: one token per byte, and nanochat's special tokens.

Tests, simulations and lessons use it where they need a tokenizer but no model directory, as
nanochat's tests of its engine do.
"""

import importlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from engine.core.output.detokenizer import ByteDetokenizer
from engine.core.tokenizer import checked

SPECIAL_TOKENS = (
    "<|bos|>",
    "<|user_start|>",
    "<|user_end|>",
    "<|assistant_start|>",
    "<|assistant_end|>",
    "<|python_start|>",
    "<|python_end|>",
    "<|output_start|>",
    "<|output_end|>",
)
_SPECIAL_PATTERN = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_CHAT_TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message.role not in ("user", "assistant") %}
{{- raise_exception("roles are user and assistant, got " + message.role) }}
{%- endif %}
{{- "<|" + message.role + "_start|>" + message.content + "<|" + message.role + "_end|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|assistant_start|>" }}{% endif %}"""


class ByteTokenizer:
    """Ids 0 to 255 are bytes of UTF-8; ids 256 to 264 are nanochat's nine special tokens.

    An output ends with `<|assistant_end|>`, or with `<|bos|>`, which begins the next document.
    """

    def __init__(self) -> None:
        self._special = {text: 256 + i for i, text in enumerate(SPECIAL_TOKENS)}
        self._table = [bytes([i]) for i in range(256)] + [t.encode() for t in SPECIAL_TOKENS]
        self.vocab_size = len(self._table)
        self.special_ids = frozenset(self._special.values())
        self.bos_id: int | None = self._special["<|bos|>"]
        self.eos_ids = frozenset({self._special["<|assistant_end|>"], self._special["<|bos|>"]})

    @cached_property
    def chat_template(self) -> Any:
        """See `Tokenizer`."""
        module = importlib.import_module("engine.models.text.chat_template")
        return module.ChatTemplate(_CHAT_TEMPLATE, {"bos_token": "<|bos|>"})

    def describe(self) -> dict[str, Any]:
        """See `Tokenizer`."""
        return {
            "name": "bytes",
            "vocab_size": self.vocab_size,
            "bos_id": self.bos_id,
            "eos_ids": sorted(self.eos_ids),
        }

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        ids = [] if text.startswith("<|bos|>") else [self._special["<|bos|>"]]
        for part in _SPECIAL_PATTERN.split(checked(text)):
            ids += [self._special[part]] if part in self._special else part.encode("utf-8")
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """See `Tokenizer`."""
        return list(checked(text).encode("utf-8"))

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer`."""
        return self._bytes(ids).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """See `Tokenizer`."""
        return list(map(ByteDetokenizer(self._table).push, ids))

    def token_bytes(self, token_id: int) -> bytes:
        """See `Tokenizer`."""
        return self._bytes([token_id])

    def token_id(self, text: str) -> int | None:
        """See `Tokenizer`."""
        return self._special.get(text)

    def detokenizer(self, prompt_ids: Sequence[int]) -> ByteDetokenizer:
        """See `Tokenizer`."""
        return ByteDetokenizer(self._table, self.eos_ids, prompt_ids)

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._table[i] for i in ids if i < len(self._table))
