"""Output processing: from sampled token ids to text, stop conditions and forced tokens.

Each sample has its own stateful output processor, because characters, stop strings and tool calls
may span several tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.events.vocabulary import FinishReason
from engine.output.calculator import evaluate
from engine.output.stop_strings import StopStrings
from engine.output.tool_use import Tool, ToolTokens
from engine.runner import Sampled
from engine.scheduling.request import Request
from engine.text.tokenizer import Tokenizer


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

    def __init__(self, request: Request, tokenizer: Tokenizer, tool: Tool | None) -> None:
        self.request = request
        self._detokenizer = tokenizer.detokenizer(request.tokens[: request.prompt_length])
        self._tool = tool
        self._stops = StopStrings(request.params.stop) if request.params.stop else None

    def append(self, sampled: Sampled) -> TokenOutput:
        """Append sampled and forced tokens, up to the one that ends the output."""
        new = TokenOutput(self.request)
        for index, token in enumerate(sampled.ids):
            top = sampled.top[index] if sampled.top else []
            self._append(new, token, sampled.logprobs[index], top)
            forced = [] if new.finish_reason else self._tool_answer(token)
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
        piece = text = self._piece(token, position)
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

    def _piece(self, token: int, position: int) -> str:  # noqa: ARG002
        """Return the token's own text. A subclass may use `position`, its index in the output."""
        return self._detokenizer.push(token)

    def _tool_answer(self, token: int) -> list[int]:
        """Return the tokens to force after the token that was appended last."""
        return [] if self._tool is None else self._tool.feed(token)


class OutputProcessors:
    """The output processors of live requests by id, each created at its request's first token."""

    def __init__(self, tokenizer: Tokenizer, tool: type[Tool]) -> None:
        self.live: dict[int, OutputProcessor] = {}
        self._tokenizer = tokenizer
        self._tool = tool
        self._tool_tokens = ToolTokens.of(tokenizer)

    def of(self, request: Request) -> OutputProcessor:
        """Return the request's output processor."""
        if request.id not in self.live:
            self.live[request.id] = self.new(request)
        return self.live[request.id]

    def new(self, request: Request) -> OutputProcessor:
        """Make an output processor, with a tool if the tokenizer has the tokens for one."""
        tool = None
        if self._tool_tokens is not None:
            tool = self._tool(self._tool_tokens, self._tokenizer, evaluate)
        return OutputProcessor(request, self._tokenizer, tool)

    def close(self, request: Request) -> None:
        """Close and drop the output processor of a finished request, if it has one."""
        processor = self.live.pop(request.id, None)
        if processor is not None:
            processor.close()


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
