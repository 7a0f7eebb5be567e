"""What a sample writes: from sampled ids to tokens, text and an end.

Each sample has a writer of its own, because text has a memory: a character may be spread over tokens,
a stop string too, and a tool call is read token by token until it is complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.events.vocabulary import FinishReason, TokenRow
from engine.output.calculator import evaluate
from engine.output.stop_strings import StopStrings
from engine.output.tool_use import Tool, ToolTokens, fed
from engine.runner import Sampled
from engine.scheduling.request import Request
from engine.text.tokenizer import Tokenizer


@dataclass(slots=True)
class TokenOutput:
    """What one request gained in a step: tokens, one entry of each list per token.

    pieces         the tokens' own text, as the log has it
    texts          the text to hand on: held back while it may become a stop string, and without it
    logprobs       0.0 for forced tokens
    top            see `SamplingParams.logprobs`; empty where nothing was asked for
    accepted       leading tokens that were drafts
    forced         trailing tokens that a tool forced
    finish_reason  "stop" or "length" if the last token ended the request
    matched        the stop string that did, else ""
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

    def row(self) -> TokenRow:
        """The same for the log."""
        return TokenRow(self.request.id, self.ids, self.pieces, self.accepted, self.forced)


class OutputProcessor:
    """Appends to one request what its sample gains.

    Source: vLLM checks the end in `check_stop` (`vllm/v1/core/sched/utils.py`) and the text in
    `vllm/v1/engine/detokenizer.py`, in another process; nanochat's `Engine.generate` forces the
    tokens of tools.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, tool: Tool | None) -> None:
        self.request = request
        self._detokenizer = tokenizer.detokenizer(request.tokens[: request.prompt_length])
        self._tool = tool
        self._vocab_size = tokenizer.vocab_size
        self._stops = StopStrings(request.params.stop)

    def append(self, sampled: Sampled) -> TokenOutput:
        """Append sampled tokens, up to the one that ends the output, and what a tool forces."""
        gained = TokenOutput(self.request)
        for index, token in enumerate(sampled.ids):
            top = sampled.top[index] if sampled.top else []
            self._append(gained, token, sampled.logprobs[index], top)
            forced = [] if gained.finish_reason else self._tool_answer(token)
            for answer in forced:
                if gained.finish_reason is None:
                    self._append(gained, answer, 0.0, [])
                    gained.forced += 1
                    self.request.num_forced_tokens += 1
            if gained.finish_reason or forced:
                break  # drafts beyond this token followed another text
        gained.accepted = min(len(sampled.ids) - 1, len(gained.ids) - gained.forced)
        self.request.num_computed_tokens += gained.accepted
        return gained

    def close(self) -> None:
        """The request is over: whatever is still held back is given out."""
        held = self._stops.flush()
        if held:
            self.request.delivered[-1] += held

    def _append(
        self, gained: TokenOutput, token: int, logprob: float, top: list[tuple[int, float]]
    ) -> None:
        request, params = self.request, self.request.params
        position = len(request.tokens) - request.prompt_length
        piece, text = self._piece(token, position), ""
        if position < params.min_tokens:
            text = piece
        elif token in request.end_ids:
            gained.finish_reason = "stop"
        else:
            text = self._stops.push(piece)
        if self._stops.matched:
            gained.finish_reason, gained.matched = "stop", self._stops.matched
        elif gained.finish_reason is None and position + 1 == params.max_tokens:
            gained.finish_reason = "length"
        if gained.finish_reason is not None and not gained.matched:
            rest = self._detokenizer.flush()
            piece, text = piece + rest, text + self._stops.push(rest) + self._stops.flush()

        request.tokens.append(token)
        request.texts.append(piece)
        request.delivered.append(text)
        request.logprobs.append(logprob)
        request.top_logprobs.append(top)
        gained.ids.append(token)
        gained.pieces.append(piece)
        gained.texts.append(text)
        gained.logprobs.append(logprob)
        gained.top.append(top)

    def _piece(self, token: int, position: int) -> str:  # noqa: ARG002
        """The token's own text; `position` is its place in the output."""
        return self._detokenizer.push(token)

    def _tool_answer(self, token: int) -> list[int]:
        """What to force after the token that was appended last."""
        return [] if self._tool is None else fed(self._tool, token, self._vocab_size)


class OutputProcessors:
    """The writers of live requests, by id; each is made when its request gains its first token."""

    def __init__(self, tokenizer: Tokenizer, tool: type[Tool]) -> None:
        self.live: dict[int, OutputProcessor] = {}
        self._tokenizer = tokenizer
        self._tool = tool
        self._tool_tokens = ToolTokens.of(tokenizer)

    def of(self, request: Request) -> OutputProcessor:
        """The request's own writer."""
        if request.id not in self.live:
            self.live[request.id] = self.new(request)
        return self.live[request.id]

    def new(self, request: Request) -> OutputProcessor:
        """A writer, with a tool where the tokenizer has the tokens for one."""
        tool = None
        if self._tool_tokens is not None:
            tool = self._tool(self._tool_tokens, self._tokenizer, evaluate)
        return OutputProcessor(request, self._tokenizer, tool)

    def close(self, request: Request) -> None:
        """The request is over, whether it has written anything or not."""
        writer = self.live.pop(request.id, None)
        if writer is not None:
            writer.close()


def best(samples: Sequence[Request]) -> list[Request]:
    """The n samples of `best_of` with the highest mean log-probability per sampled token, best first.

    Tokens that a tool forced do not count: the model did not choose them.
    """
    params = samples[0].params
    if params.best_of is None:
        return list(samples)

    def mean(request: Request) -> float:
        # Forced tokens add 0.0 to the sum.
        return sum(request.logprobs) / max(1, len(request.logprobs) - request.num_forced_tokens)

    return sorted(samples, key=mean, reverse=True)[: params.n]
