"""/v1/completions in OpenAI's form.

A stream's chunks, per choice: text as it comes, the last text together with its finish_reason; with
`include_usage` a chunk without choices; then `[DONE]`.
"""

from dataclasses import dataclass
from typing import Any

from engine.scheduling.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer
from server.api.openai.logprobs import CompletionLogprobs, echoed
from server.api.openai.wire import DONE, Envelope, best_choices, count, usage
from server.core.request_stream import OutputDelta, Prompt, RequestStream
from server.http.streaming import sse


def encode_prompts(
    prompts: list[str | list[int]], params: SamplingParams, tokenizer: Tokenizer
) -> list[Prompt]:
    """Text becomes token ids; ids stay what they are."""
    return [
        Prompt(tokenizer.encode(prompt) if isinstance(prompt, str) else prompt, params)
        for prompt in prompts
    ]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a completion shows beside its output.

    echo      the prompt, in front
    logprobs  of the tokens that it shows
    output    False for max_tokens 0: the one token that the engine makes nevertheless is kept back
    """

    echo: bool = False
    logprobs: bool = False
    output: bool = True


class CompletionSerializer:
    """The Form of a completion stream; `render` is the same answer whole.

    `prompts` are the request's, before they became token ids.
    """

    done = DONE

    def __init__(
        self,
        model: str,
        prompts: list[str | list[int]],
        tokenizer: Tokenizer,
        shown: Shown,
        *,
        include_usage: bool,
    ) -> None:
        self._envelope = Envelope("cmpl", "text_completion", model)
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._shown = shown
        self._plain = shown == Shown()
        self._include_usage = include_usage
        self._tokens = 0
        self._lengths: dict[int, int] = {}  # characters that a choice has so far

    def begin(self, generation: RequestStream) -> None:
        """See `ResponseSerializer`."""
        self._generation = generation

    def chunk(self, gain: OutputDelta) -> bytes:
        """The text so far unsent, and the end if this is it."""
        choice = self._choice(gain)
        if not choice["text"] and choice["logprobs"] is None and not gain.finish_reason:
            return b""
        return sse(self._envelope.wrap([choice]))

    def closing(self) -> bytes:
        """Token counts, if asked for."""
        if not self._include_usage:
            return b""
        return sse(self._envelope.wrap([], usage=usage(self._generation, self._tokens)))

    def render(self, generation: RequestStream, choices: list[OutputDelta]) -> dict[str, Any]:
        """The whole response. Samples that `best_of` leaves out count as output as well."""
        self._generation = generation
        tokens = count(choices) if self._shown.output else 0
        shown = [self._choice(gain) for gain in best_choices(generation, choices)]
        return self._envelope.wrap(shown, usage=usage(generation, tokens))

    def _choice(self, gain: OutputDelta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": gain.choice,
            "text": "".join(gain.texts),
            "logprobs": None,
            "finish_reason": gain.finish_reason,
        }
        if not self._plain:
            self._show_more(choice, gain)
        if self._shown.output:
            self._tokens += len(gain.ids)
        return choice

    def _show_more(self, choice: dict[str, Any], gain: OutputDelta) -> None:
        """Change the choice into what was asked for: with the prompt, without output, with logprobs."""
        shown, index = self._shown, gain.choice
        first = index not in self._lengths
        logprobs = CompletionLogprobs(self._tokenizer, self._lengths.get(index, 0))
        if not shown.output:
            choice["text"] = ""
            choice["finish_reason"] = gain.finish_reason and "length"
        if shown.echo and first:
            of_prompt = index // self._generation.prompts[0].params.n
            ids, prompt = self._generation.prompts[of_prompt].tokens, self._prompts[of_prompt]
            pieces = echoed(prompt, ids, self._tokenizer)
            text = prompt if isinstance(prompt, str) else "".join(pieces)
            choice["text"] = text + choice["text"]
            if shown.logprobs:
                logprobs.add_prompt(ids, pieces, gain.prompt_scores)
            logprobs.offset = len(text)
        if shown.logprobs and shown.output and gain.logprobs is not None:
            logprobs.add(gain.ids, gain.logprobs)
        if shown.logprobs and (gain.ids or first):
            choice["logprobs"] = logprobs.form()
        self._lengths[index] = logprobs.offset
