"""What both endpoints put on the wire around the text: ids, counts, the end of a stream."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from server.core.request_stream import OutputDelta, RequestStream

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Envelope:
    """What all chunks of one response have in common: one id and one time for all of them."""

    prefix: str
    kind: str
    model: str
    id: str = field(init=False)
    created: int = field(init=False)

    def __post_init__(self) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def wrap(self, choices: list[dict[str, Any]], **more: object) -> dict[str, Any]:
        """A response or chunk with these choices."""
        head = {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}
        return head | {"choices": choices} | more


def usage(generation: RequestStream, completion_tokens: int) -> dict[str, Any]:
    """Token counts. Cached ones are those of the prompt that the prefix cache already had."""
    prompt_tokens = generation.prompt_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(generation.cached_tokens)},
    }


def count(choices: list[OutputDelta]) -> int:
    """Tokens in all choices."""
    return sum(len(choice.ids) for choice in choices)


def best_choices(generation: RequestStream, choices: list[OutputDelta]) -> list[OutputDelta]:
    """The choices to hand out: of each prompt's samples the n best, best first, and numbered anew.

    Without `best_of` all of them, as they are. See `engine.output.processor.best`.
    """
    params = generation.prompts[0].params  # the same for all prompts of a request
    if params.best_of is None:
        return choices
    best: list[OutputDelta] = []
    for first in range(0, len(choices), params.best_of):
        samples = sorted(choices[first : first + params.best_of], key=_mean_logprob, reverse=True)
        best += samples[: params.n]
    for index, gain in enumerate(best):
        gain.choice = index
    return best


def _mean_logprob(gain: OutputDelta) -> float:
    assert gain.logprobs is not None  # best_of asks for them
    sampled = len(gain.ids) - sum(gain.logprobs.forced)  # forced tokens add 0.0 to the sum
    return sum(gain.logprobs.chosen) / max(1, sampled)
