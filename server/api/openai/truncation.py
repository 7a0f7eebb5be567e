"""`truncate_prompt_tokens`: cut a prompt that is too long instead of rejecting it.

Source: `TokenizeParams` in vLLM (`vllm/renderers/params.py`), whose tokenizers cut on the left.

Differs from vLLM: -1 leaves room for `max_tokens`. vLLM leaves one token of context and shortens the
output instead.
"""

from dataclasses import dataclass
from typing import Literal

from engine.core.scheduling.admission import RequestError
from server.api.openai.requests import SamplingRequest
from server.core.admission import max_request_tokens
from server.core.bridge import Bridge


@dataclass(frozen=True, slots=True)
class Truncation:
    """How to cut a prompt.

    limit   the number of tokens to keep; -1 keeps as many as fit, None keeps all
    side    the side on which tokens are removed
    """

    limit: int | None = None
    side: Literal["left", "right"] = "left"

    @classmethod
    def of(cls, body: SamplingRequest) -> "Truncation":
        """Return the truncation that a body asks for."""
        return cls(body.truncate_prompt_tokens, body.truncation_side or "left")

    @property
    def is_on(self) -> bool:
        """Whether prompts are cut."""
        return self.limit is not None

    def cut(self, tokens: list[int], max_tokens: int, bridge: Bridge) -> list[int]:
        """Return the tokens that are kept.

        max_tokens  number of output tokens for which a limit of -1 leaves room

        Raises RequestError if the limit exceeds the context.
        """
        most = max_request_tokens(bridge)
        if self.limit is None:
            return tokens
        if self.limit > most:
            raise RequestError(
                "truncate_prompt_tokens",
                f"must be at most {most}, the context length, got {self.limit}",
            )
        limit = max(1, most - max_tokens) if self.limit == -1 else self.limit
        return tokens[max(0, len(tokens) - limit) :] if self.side == "left" else tokens[:limit]


NO_TRUNCATION = Truncation()
