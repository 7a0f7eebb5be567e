"""A stream: one GENERATE or SCORE on its way through the engine and back as tokens.

Both are ordinary requests of the engine: they queue up behind the same bridge as HTTP's, share its
batches, and are in the event log. SCORE is a request that asks for its prompt's log-probabilities; the
one token that every request samples costs nothing and is dropped.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from engine.engine import Engine
from engine.scheduling.admission import RequestError
from engine.scheduling.request import Request
from engine.scheduling.sampling_params import SamplingError, SamplingParams
from server.api.lmtp.buffers import Buffer, Buffers
from server.api.lmtp.calls import GenerateCall, PromptCall, ScoreCall, StreamId
from server.api.lmtp.outlet import Outlet
from server.api.lmtp.prompts import continuation_ids, prompt_ids
from server.api.lmtp.wire import LEAST_LOGPROB, item
from server.core.bridge import Bridge
from server.core.prompt_length import check_length, room
from server.core.request_stream import (
    GenerationRequest,
    OutputDelta,
    Prompt,
    RequestContext,
    RequestStream,
)
from server.http.errors import ApiError, bad_request


class Stream:
    """One stream of a session; `before` is what its prompt goes on after."""

    def __init__(
        self,
        call: PromptCall,
        bridge: Bridge,
        outlet: Outlet,
        buffers: Buffers,
        before: Buffer | None,
    ) -> None:
        if before is not None and before.model != bridge.settings.model_name:
            raise bad_request("from", f"buffer {call.from_!r} has the tokens of another model")
        self._call = call
        self._bridge = bridge
        self._before = before.tokens if before is not None else []
        self._buffers = buffers
        self._outlet = outlet
        self._scored: list[int] = []  # known once the prompt has been tokenized
        self._keeper: Callable[[Engine, Request], None] | None = None

    async def run(self, label: str, context: RequestContext | None) -> None:
        """Have it computed, and put every token into the outlet.

        Raises ApiError for what cannot be served, or failed.
        """
        call = self._call
        order = GenerationRequest(
            lambda: [self._prompt()],
            label=call.user or label,
            priority=call.priority or 0,
            fields=_FIELDS,
        )
        keep = call.keep if isinstance(call, GenerateCall) else None
        place = nullcontext() if keep is None else self._buffers.place(keep, self._bridge)
        with place as self._keeper:
            async with self._bridge.generate(order, context) as generation:
                await self._say_queued(generation)
                if isinstance(call, ScoreCall):
                    await self._send_scores(call, generation)
                elif isinstance(call, GenerateCall):
                    await self._send_tokens(call, generation)

    def _prompt(self) -> Prompt:
        """The engine's view of the call; on the tokenizer thread."""
        call, tokenizer = self._call, self._bridge.tokenizer
        given = [call.prompt, call.scored] if isinstance(call, ScoreCall) else [call.prompt]
        check_length([sum(len(text) for text in given if isinstance(text, str))], self._bridge)
        ids = prompt_ids(call.prompt, self._before, tokenizer)
        if isinstance(call, ScoreCall):
            self._scored = continuation_ids(call.scored, tokenizer)
            if not self._scored:
                raise RequestError("scored", "is empty; give it at least one token")
            last = tokenizer.vocab_size - 1
            for id_ in self._scored:
                if not 0 <= id_ <= last:
                    message = f"token id {id_} is not in the vocabulary (0 to {last})"
                    raise RequestError("scored", message)
            return Prompt(ids + self._scored, SamplingParams(max_tokens=1, prompt_logprobs=0))
        assert isinstance(call, GenerateCall)
        left = room(self._bridge) - len(ids)
        try:
            params = call.sampling(vocab_size=tokenizer.vocab_size, room=left)
        except SamplingError as error:
            raise RequestError(error.field, str(error).removeprefix(f"{error.field} ")) from error
        return Prompt(ids, params, self._keeper)

    async def _say_queued(self, generation: RequestStream) -> None:
        """Tell the client which request of the log it is, and how many are in line before it."""
        request, waiting = generation.request_ids[0], self._bridge.window.state.waiting
        ahead = list(waiting).index(request) if request in waiting else 0
        await self._message(status="queued", request=request, ahead=ahead)

    async def _send_tokens(self, call: GenerateCall, generation: RequestStream) -> None:
        with_text = isinstance(call.prompt, str)
        while not generation.finished:
            for gain in await generation.deltas(self._bridge.settings.keep_alive):
                if gain.finish_reason is not None and call.keep is not None:
                    await self._message(status="kept", **self._buffers.summary(call.keep))
                items = _token_items(call.stream_id, gain, with_text=with_text)
                await self._outlet.put("TOKEN", [item(one) for one in items])

    async def _send_scores(self, call: ScoreCall, generation: RequestStream) -> None:
        scores: list[float] = []
        while not generation.finished:
            for gain in await generation.deltas(self._bridge.settings.keep_alive):
                scores += [score.logprob for score in gain.prompt_scores]
        scored = self._scored
        items: list[dict[str, Any]] = [
            {
                "stream_id": call.stream_id,
                "token": id_,
                "logprob": max(logprob, LEAST_LOGPROB),
                "finish_reason": None,
            }
            for id_, logprob in zip(scored, scores[-len(scored) :], strict=True)
        ]
        items[-1]["finish_reason"] = "stop"
        if isinstance(call.scored, str):
            for one, text in zip(items, self._bridge.tokenizer.pieces(scored), strict=True):
                one["text"] = text
        await self._outlet.put("TOKEN", [item(one) for one in items])

    async def _message(self, **content: object) -> None:
        await self._outlet.put("MSG", [item({"stream_id": self._call.stream_id} | content)])


def error_item(stream_id: StreamId | None, error: ApiError) -> bytes:
    """An error as an item. `error` is what LMQL's client shows; `retry` says that trying again helps.

    That is so where the request is fine and the server was not, or was full.
    """
    content: dict[str, object] = {
        "stream_id": stream_id,
        "error": error.error["message"],
        "code": error.error["code"] or "invalid_request",
        "param": error.error["param"],
        "retry": error.status == 429 or error.status >= 500,
    }
    if "Retry-After" in error.headers:
        content["retry_after"] = float(error.headers["Retry-After"])
    return item(content)


def _token_items(
    stream_id: StreamId, gain: OutputDelta, *, with_text: bool
) -> Iterator[dict[str, Any]]:
    """One item per token; the last one's `finish_reason` says that nothing comes after it."""
    assert gain.logprobs is not None, "GENERATE always asks for log-probabilities"
    last = len(gain.ids) - 1
    for index, id_ in enumerate(gain.ids):
        logprob = gain.logprobs.chosen[index]
        top = [*gain.logprobs.top[index], (id_, logprob)]  # LMQL wants the chosen one in it
        one = {
            "stream_id": stream_id,
            "token": id_,
            "logprob": max(logprob, LEAST_LOGPROB),
            "finish_reason": gain.finish_reason if index == last else None,
            "top_logprobs": {other: max(value, LEAST_LOGPROB) for other, value in top},
        }
        if gain.logprobs.forced[index]:
            one["forced"] = True
        if with_text:
            one["text"] = gain.texts[index]
        yield one


# The engine's name of a field -> LMTP's, where they differ.
_FIELDS = {"logprobs": "top_logprobs"}
