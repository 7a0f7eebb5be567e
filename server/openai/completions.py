"""/v1/completions in OpenAI's form.

A stream's chunks, per choice: text as it comes, the last text together with its finish_reason; with
`include_usage` a chunk without choices; then `[DONE]`.
"""

from typing import Any

from engine.scheduling.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer
from server.generation import Gain, Generation, Prompt
from server.openai.wire import DONE, Envelope, count, usage
from server.streaming import sse


def encode_prompts(
    prompts: list[str | list[int]], params: SamplingParams, tokenizer: Tokenizer
) -> list[Prompt]:
    """Text becomes token ids; ids stay what they are."""
    return [
        Prompt(tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, params)
        for prompt in prompts
    ]


class CompletionForm:
    """The Form of a completion stream; `render` is the same answer whole."""

    done = DONE

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._envelope = Envelope("cmpl", "text_completion", model)
        self._include_usage = include_usage
        self._tokens = 0

    def opening(self, generation: Generation) -> bytes:
        """Nothing comes before the first text."""
        self._generation = generation
        return b""

    def chunk(self, gain: Gain) -> bytes:
        """The text so far unsent, and the end if this is it."""
        self._tokens += len(gain.ids)
        if not gain.finish_reason and not any(gain.texts):
            return b""
        return sse(self._envelope.wrap([_choice(gain)]))

    def closing(self) -> bytes:
        """Token counts, if asked for."""
        if not self._include_usage:
            return b""
        return sse(self._envelope.wrap([], usage=usage(self._generation, self._tokens)))

    def render(self, generation: Generation, choices: list[Gain]) -> dict[str, Any]:
        """The whole response."""
        counts = usage(generation, count(choices))
        return self._envelope.wrap([_choice(choice) for choice in choices], usage=counts)


def _choice(gain: Gain) -> dict[str, Any]:
    return {
        "index": gain.choice,
        "text": "".join(gain.texts),
        "logprobs": None,
        "finish_reason": gain.finish_reason,
    }
