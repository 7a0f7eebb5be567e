"""A stream: one GENERATE or SCORE, from its prompt to its tokens.

Both are ordinary engine requests: they go through the same bridge as HTTP requests, share batches with
them, and appear in the event log. SCORE is a request for the log-probabilities of its prompt. Every
request samples at least one token; the token that SCORE samples needs no extra step and is dropped.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from engine.core.sampling_params import SamplingError, SamplingParams
from engine.core.scheduling.admission import RequestError
from engine.core.tokenizer import Tokenizer, encode_continuation
from server.api.lmtp.buffers import Buffer, Buffers
from server.api.lmtp.frames import (
    MIN_LOGPROB,
    GenerateCall,
    PromptCall,
    ScoreCall,
    StreamId,
    Tokens,
    item,
)
from server.core.admission import check_length, max_request_tokens
from server.core.bridge import Bridge
from server.core.commands import OutputDelta, Prompt
from server.core.request_stream import GenerationRequest, RequestContext, RequestStream
from server.http.continued import Continued, StreamName
from server.http.errors import bad_request


class Stream:
    """One stream of a session.

    put     adds items of a TOKEN or MSG frame to the session's send queue
    before  the buffer whose tokens precede the prompt, or None
    """

    def __init__(
        self,
        call: PromptCall,
        bridge: Bridge,
        put: Callable[[str, list[bytes]], Awaitable[None]],
        buffers: Buffers,
        before: Buffer | None,
    ) -> None:
        if before is not None and before.model != bridge.settings.model_name:
            raise bad_request("from", f"from: buffer {call.from_!r} has tokens of another model")
        self._call = call
        self._bridge = bridge
        self._before = before.tokens if before is not None else []
        self._buffers = buffers
        self._put = put
        self._scored: list[int] = []  # known once the prompt has been tokenized
        self._buffer = 0  # the number of the buffer that `keep` names

    async def run(self, label: str, context: RequestContext | None) -> None:
        """Submit the request and put every token into the send queue.

        Raises ApiError if the request cannot be served or fails.
        """
        call = self._call
        name, output = None, None
        if isinstance(call, GenerateCall):
            name, output = call.keep, call.output
        with self._buffers.reserve(name) as self._buffer:
            request = GenerationRequest(
                self._encode,
                call.user or label,
                call.priority or 0,
                _FIELDS,
                lambda kept: self._buffers.store(name or "", kept, self._bridge),
                model=call.model or "",
                continued=Continued(StreamName(), [[0, *output]]) if output else None,
            )
            async with self._bridge.generate(request, context) as stream:
                await self._send_queued(stream)
                if isinstance(call, ScoreCall):
                    await self._send_scores(call, stream)
                elif isinstance(call, GenerateCall):
                    await self._send_tokens(call, stream)

    def _encode(self, bridge: Bridge) -> list[Prompt]:
        """Return the engine's prompt; runs on the tokenizer thread."""
        call, tokenizer = self._call, bridge.tokenizer
        texts = [call.prompt, call.scored] if isinstance(call, ScoreCall) else [call.prompt]
        check_length([sum(len(text) for text in texts if isinstance(text, str))], bridge)
        ids = _encode_prompt(call.prompt, self._before, tokenizer)
        if isinstance(call, ScoreCall):
            self._scored = _encode_scored(call.scored, tokenizer)
            params = SamplingParams(max_tokens=1, prompt_logprobs=0)
            return [Prompt(ids + self._scored, params)]
        assert isinstance(call, GenerateCall)
        try:
            params = call.sampling(
                vocab_size=tokenizer.vocab_size, room=max_request_tokens(bridge) - len(ids)
            )
        except SamplingError as error:
            raise RequestError(error.field, str(error).removeprefix(f"{error.field} ")) from error
        return [Prompt(ids, params, self._buffer)]

    async def _send_queued(self, stream: RequestStream) -> None:
        """Tell the client its request's id in the log, and how many requests are ahead of it."""
        request, waiting = stream.request_ids[0], self._bridge.window.state.waiting
        ahead = list(waiting).index(request) if request in waiting else 0
        await self._send_message(status="queued", request=request, ahead=ahead)

    async def _send_tokens(self, call: GenerateCall, stream: RequestStream) -> None:
        with_text = isinstance(call.prompt, str)
        while not stream.finished:
            for delta in await stream.deltas(self._bridge.settings.keep_alive):
                if delta.finish_reason is not None and call.keep is not None:
                    await self._send_message(status="kept", **self._buffers.summary(call.keep))
                items = _token_items(call.stream_id, delta, with_text=with_text)
                await self._put("TOKEN", [item(content) for content in items])

    async def _send_scores(self, call: ScoreCall, stream: RequestStream) -> None:
        scores: list[float] = []
        while not stream.finished:
            for delta in await stream.deltas(self._bridge.settings.keep_alive):
                scores += [score.logprob for score in delta.prompt_scores]
        scored = self._scored
        items: list[dict[str, Any]] = [
            {
                "stream_id": call.stream_id,
                "token": id_,
                "logprob": max(logprob, MIN_LOGPROB),
                "finish_reason": None,
            }
            for id_, logprob in zip(scored, scores[-len(scored) :], strict=True)
        ]
        items[-1]["finish_reason"] = "stop"
        if isinstance(call.scored, str):
            for content, text in zip(items, self._bridge.tokenizer.pieces(scored), strict=True):
                content["text"] = text
        await self._put("TOKEN", [item(content) for content in items])

    async def _send_message(self, **content: object) -> None:
        await self._put("MSG", [item({"stream_id": self._call.stream_id} | content)])


def _encode_prompt(prompt: Tokens, before: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Return the ids `before`, followed by the ids of the prompt.

    If both are empty, return the beginning-of-sequence token. Raises RequestError if the tokenizer has
    no such token.
    """
    if isinstance(prompt, str) and not before:
        ids = tokenizer.encode(prompt)
    else:
        ids = [*before, *_encode_after(prompt, tokenizer)]
    if not ids:
        if tokenizer.bos_id is None:
            raise RequestError("prompt", "must have at least one token, got an empty prompt")
        ids = [tokenizer.bos_id]
    return ids


def _encode_scored(scored: Tokens, tokenizer: Tokenizer) -> list[int]:
    """Return the ids to score. Raises RequestError if there are none or if one is unknown."""
    ids, last = _encode_after(scored, tokenizer), tokenizer.vocab_size - 1
    if not ids:
        raise RequestError("scored", "must have at least one token, got an empty text or list")
    for id_ in ids:
        if not 0 <= id_ <= last:
            raise RequestError("scored", f"token id {id_} is not in the vocabulary (0 to {last})")
    return ids


def _encode_after(text: Tokens, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text that follows other tokens, without a beginning-of-sequence token.

    LMQL's client sends ids, with the beginning-of-sequence token first. If its tokenizer has no such
    token, it sends an empty prompt as `[null]`.
    """
    if isinstance(text, str):
        return encode_continuation(text, tokenizer)
    return [id_ for id_ in text if id_ is not None]


def _token_items(
    stream_id: StreamId, delta: OutputDelta, *, with_text: bool
) -> Iterator[dict[str, Any]]:
    """Yield one item per token; a `finish_reason` marks the last item of the stream."""
    assert delta.logprobs is not None, "GENERATE always asks for log-probabilities"
    last = len(delta.ids) - 1
    for index, id_ in enumerate(delta.ids):
        logprob = delta.logprobs.chosen[index]
        top = [
            *delta.logprobs.top[index],
            (id_, logprob),
        ]  # LMQL expects the sampled token in this list
        content = {
            "stream_id": stream_id,
            "token": id_,
            "logprob": max(logprob, MIN_LOGPROB),
            "finish_reason": delta.finish_reason if index == last else None,
            "top_logprobs": {other: max(value, MIN_LOGPROB) for other, value in top},
        }
        if delta.logprobs.forced[index]:
            content["forced"] = True
        if with_text:
            content["text"] = delta.texts[index]
        yield content


# The engine's field names -> LMTP's, where they differ.
_FIELDS = {"logprobs": "top_logprobs", "structured": "structured_outputs"}
