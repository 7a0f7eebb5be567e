"""Output processing: from sampled token ids to text, stop conditions and forced tokens.

Each sample has its own stateful output processor, because characters, stop strings and tool calls
may span several tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from engine.core.config import EngineConfig
from engine.core.extras import extension
from engine.core.log.vocabulary import FinishReason
from engine.core.output.detokenizer import IncrementalDetokenizer
from engine.core.output.stop_strings import StopStrings
from engine.core.output.tool_use import SpecialTokens, Tool, ToolTokens, ToolUse
from engine.core.request import Constraint, Request
from engine.core.runner import NO_MASK, Sampled, TokenMask
from engine.core.sampling_params import SamplingParams
from engine.core.tokenizer import Tokenizer


@dataclass(slots=True)
class TokenOutput:
    """The new tokens of one request in a step, with one entry per token in each list.

    pieces         the tokens' own text, as in the log
    visible        `pieces` without the tokens that `skip_special_tokens` leaves out
    texts          the text to deliver: `visible` without stop strings and text that may become one
    logprobs       0.0 for forced tokens
    top            see `SamplingParams.logprobs`; empty lists if it is None
    masks          what the grammar left to choose from
    accepted       leading tokens that were drafts
    forced         trailing tokens that a tool or the grammar forced
    finish_reason  "stop", "length" or "error" if the last token ended the request
    matched        the stop string that ended it, else ""
    stop_token     the token of `stop_token_ids` that ended it, else None
    """

    request: Request
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    visible: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    masks: list[TokenMask] = field(default_factory=list)
    accepted: int = 0
    forced: int = 0
    finish_reason: FinishReason | None = None
    matched: str = ""
    stop_token: int | None = None


class OutputProcessor:
    """Appends sampled tokens to one request and checks whether they end it.

    Source: vLLM checks tokens in `check_stop` (`vllm/v1/core/sched/utils.py`) and text in
    `vllm/v1/engine/detokenizer.py`, in another process; nanochat's `Engine.generate` forces the
    tokens of tools.

    new_tool      makes the sample's tool, if it has one
    call_start    the token at which the tool is made; None makes it at once
    jump_forward  append what the grammar forces; the request has a constraint
    """

    def __init__(
        self,
        request: Request,
        detokenizer: IncrementalDetokenizer,
        new_tool: Callable[[], Tool] | None,
        special: SpecialTokens | None = None,
        *,
        call_start: int | None = None,
        jump_forward: bool = False,
    ) -> None:
        self.request = request
        self._detokenizer = detokenizer
        self._new_tool, self._call_start = new_tool, call_start
        self._tool = new_tool() if new_tool is not None and call_start is None else None
        self._jump_forward = jump_forward
        self._special = special
        params = request.params
        self._stops = None
        if params.stop:
            self._stops = StopStrings(params.stop, include=params.include_stop_str_in_output)

    def append(self, sampled: Sampled) -> TokenOutput:
        """Append sampled and forced tokens, up to the one that ends the output."""
        new = TokenOutput(self.request)
        for index, token in enumerate(sampled.ids):
            top = sampled.top[index] if sampled.top else []
            mask = sampled.masks[index] if sampled.masks else NO_MASK
            self._append(new, token, sampled.logprobs[index], top, mask)
            if new.finish_reason is not None:
                break
            is_call = self._tool is not None or token == self._call_start
            if is_call and self._is_answered(new, token):
                break  # later drafts were made for a different text
        if self._jump_forward:
            self._append_forced_run(new)
        new.accepted = min(len(sampled.ids) - 1, len(new.ids) - new.forced)
        return new

    def replay(self, ids: Sequence[int]) -> TokenOutput:
        """Append tokens that another engine generated, its tool's answers among them."""
        new, answered = TokenOutput(self.request), 0
        for token in ids:
            self._append(new, token, 0.0, [], NO_MASK)
            if new.finish_reason is not None:
                break
            if answered:
                answered -= 1
                self.request.num_forced_tokens += 1
                continue
            if token == self._call_start and self._tool is None and self._new_tool is not None:
                self._tool = self._new_tool()
            answered = 0 if self._tool is None else len(self._tool.feed(token))
        return new

    def deliver_held_text(self) -> None:
        """Deliver the text that was held back for stop strings; the request has ended."""
        held = self._stops.flush() if self._stops else ""
        if held:
            self.request.delivered[-1] += held

    def _is_answered(self, new: TokenOutput, token: int) -> bool:
        """Ask the tool about a token and append its answer; the text then is not what it was."""
        if token == self._call_start and self._tool is None and self._new_tool is not None:
            self._tool = self._new_tool()
        answer = [] if self._tool is None else self._tool.feed(token)
        for forced in answer:
            if new.finish_reason is None:
                self._append_forced(new, forced, NO_MASK)
        return bool(answer)

    def _append_forced_run(self, new: TokenOutput) -> None:
        """Jump forward: append the tokens that the grammar leaves no choice about."""
        constraint = self.request.constraint
        assert constraint is not None
        while new.finish_reason is None and (run := constraint.forced(self.request.output_ids)):
            for token in run:
                self._append_forced(new, token, TokenMask(allowed=1))
                if new.finish_reason is not None or self._is_answered(new, token):
                    break

    def _append_forced(self, new: TokenOutput, token: int, mask: TokenMask) -> None:
        self._append(new, token, 0.0, [], mask)
        new.forced += 1
        self.request.num_forced_tokens += 1

    def _append(
        self,
        new: TokenOutput,
        token: int,
        logprob: float,
        top: list[tuple[int, float]],
        mask: TokenMask,
    ) -> None:
        request, params, stops = self.request, self.request.params, self._stops
        position = len(request.tokens) - request.prompt_length
        piece = self._detokenizer.push(token)
        skipped = self._special is not None and self._special.skips(token)
        visible = text = "" if skipped else piece
        if position >= params.min_tokens:
            if token in request.end_ids:
                new.finish_reason = "stop"
                new.stop_token = token if token in params.stop_token_ids else None
                text = visible if params.include_stop_str_in_output else ""
            elif stops is not None:
                text = stops.push(visible)
                if stops.matched:
                    new.finish_reason, new.matched = "stop", stops.matched
        constraint = request.constraint
        if constraint is not None and (new.finish_reason is None or token in constraint.end_ids):
            new.finish_reason = self._end_of_shape(constraint, token)
        if new.finish_reason is None and position + 1 == params.max_tokens:
            new.finish_reason = "length"
        if new.finish_reason is not None and not new.matched:
            rest = self._detokenizer.flush()
            piece += rest
            if self._special is not None and self._special.in_tool:
                rest = ""
            visible += rest
            text += rest if stops is None else stops.push(rest) + stops.flush()

        request.tokens.append(token)
        request.texts.append(piece)
        request.delivered.append(text)
        request.logprobs.append(logprob)
        request.top_logprobs.append(top)
        new.ids.append(token)
        new.pieces.append(piece)
        new.visible.append(visible)
        new.texts.append(text)
        new.logprobs.append(logprob)
        new.top.append(top)
        new.masks.append(mask)

    def _end_of_shape(self, constraint: Constraint, token: int) -> FinishReason | None:
        """Return "stop" if only an end token could follow, also with min_tokens or ignore_eos.

        Return "error" if the output cannot have the shape any more.
        """
        complete = constraint.is_complete([*self.request.output_ids, token])
        if constraint.error:
            self.request.error_field = "" if constraint.misread else "structured"
            self.request.error = f"structured: {constraint.error}"
            return "error"
        return "stop" if complete else None


def output_maker(
    config: EngineConfig, tokenizer: Tokenizer, tool: Callable[..., Tool]
) -> Callable[[Request], OutputProcessor]:
    """Return what creates output processors, with a tool if the tokenizer has the tokens for one."""
    tool_tokens = ToolTokens.of(tokenizer)
    new_tool: Callable[[], Tool] | None = None
    call_start: int | None = None  # the engine's own tool does nothing before a call
    if tool_tokens is not None:
        new_tool = partial(tool, tool_tokens, tokenizer, extension("calculator").evaluate)
        call_start = tool_tokens.call_start if tool is ToolUse else None

    def new_output(request: Request) -> OutputProcessor:
        params, special = request.params, None
        if params.skip_special_tokens:
            special = SpecialTokens(tokenizer.special_ids, tool_tokens)
        # A forced token has no log-probability, so a request that needs log-probabilities gets no
        # tokens that its grammar forces.
        jump = request.constraint is not None and config.jump_forward
        jump = jump and params.logprobs is None and params.best_of is None
        return OutputProcessor(
            request,
            tokenizer.detokenizer(request.tokens[: request.prompt_length]),
            new_tool,
            special,
            call_start=call_start,
            jump_forward=jump,
        )

    return new_output


def best(samples: Sequence[Request], params: SamplingParams) -> list[Request]:
    """Return the n samples of `best_of` with the highest mean log-probability, best first.

    Forced tokens do not count, because the model did not choose them.
    """

    def mean(request: Request) -> float:
        # Forced tokens add 0.0 to the sum.
        return sum(request.logprobs) / max(1, len(request.logprobs) - request.num_forced_tokens)

    return sorted(samples, key=mean, reverse=True)[: params.n]
