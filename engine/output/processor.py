"""Output processing: from sampled token ids to text, stop conditions and forced tokens.

Each sample has its own stateful output processor, because characters, stop strings and tool calls
may span several tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.events.vocabulary import FinishReason
from engine.output.detokenizer import IncrementalDetokenizer
from engine.output.stop_strings import StopStrings
from engine.output.tool_use import Tool
from engine.runner import Sampled
from engine.scheduling.request import Request


@dataclass(slots=True)
class TokenOutput:
    """The new tokens of one request in a step, with one entry per token in each list.

    pieces         the tokens' own text, as in the log
    texts          the text to deliver, without stop strings and text that may become one
    logprobs       0.0 for forced tokens
    top            see `SamplingParams.logprobs`; empty lists if it is None
    accepted       leading tokens that were drafts
    forced         trailing tokens that a tool forced
    finish_reason  "stop" or "length" if the last token ended the request
    matched        the stop string that ended it, else ""
    """

    request: Request
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    accepted: int = 0
    forced: int = 0
    finish_reason: FinishReason | None = None
    matched: str = ""


class OutputProcessor:
    """Appends sampled tokens to one request and checks whether they end it.

    Source: vLLM checks tokens in `check_stop` (`vllm/v1/core/sched/utils.py`) and text in
    `vllm/v1/engine/detokenizer.py`, in another process; nanochat's `Engine.generate` forces the
    tokens of tools.
    """

    def __init__(
        self, request: Request, detokenizer: IncrementalDetokenizer, tool: Tool | None
    ) -> None:
        self.request = request
        self._detokenizer = detokenizer
        self._tool = tool
        self._stops = StopStrings(request.params.stop) if request.params.stop else None

    def append(self, sampled: Sampled) -> TokenOutput:
        """Append sampled and forced tokens, up to the one that ends the output."""
        new = TokenOutput(self.request)
        for index, token in enumerate(sampled.ids):
            top = sampled.top[index] if sampled.top else []
            self._append(new, token, sampled.logprobs[index], top)
            forced: list[int] = []
            if self._tool is not None and new.finish_reason is None:
                forced = self._tool.feed(token)
            for answer in forced:
                if new.finish_reason is None:
                    self._append(new, answer, 0.0, [])
                    new.forced += 1
                    self.request.num_forced_tokens += 1
            if new.finish_reason or forced:
                break  # later drafts were made for a different text
        new.accepted = min(len(sampled.ids) - 1, len(new.ids) - new.forced)
        return new

    def close(self) -> None:
        """Deliver the held-back text when the request has ended."""
        held = self._stops.flush() if self._stops else ""
        if held:
            self.request.delivered[-1] += held

    def _append(
        self, new: TokenOutput, token: int, logprob: float, top: list[tuple[int, float]]
    ) -> None:
        request, params, stops = self.request, self.request.params, self._stops
        position = len(request.tokens) - request.prompt_length
        piece = text = self._detokenizer.push(token)
        if position >= params.min_tokens:
            if token in request.end_ids:
                new.finish_reason, text = "stop", ""
            elif stops is not None:
                text = stops.push(piece)
                if stops.matched:
                    new.finish_reason, new.matched = "stop", stops.matched
        if new.finish_reason is None and position + 1 == params.max_tokens:
            new.finish_reason = "length"
        if new.finish_reason is not None and not new.matched:
            rest = self._detokenizer.flush()
            piece += rest
            text += rest if stops is None else stops.push(rest) + stops.flush()

        request.tokens.append(token)
        request.texts.append(piece)
        request.delivered.append(text)
        request.logprobs.append(logprob)
        request.top_logprobs.append(top)
        new.ids.append(token)
        new.pieces.append(piece)
        new.texts.append(text)
        new.logprobs.append(logprob)
        new.top.append(top)


def best(samples: Sequence[Request]) -> list[Request]:
    """Return the n samples of `best_of` with the highest mean log-probability, best first.

    Tokens that a tool forced do not count, because the model did not choose them.
    """
    params = samples[0].params
    if params.best_of is None:
        return list(samples)

    def mean(request: Request) -> float:
        # Forced tokens add 0.0 to the sum.
        return sum(request.logprobs) / max(1, len(request.logprobs) - request.num_forced_tokens)

    return sorted(samples, key=mean, reverse=True)[: params.n]
