"""/v1/chat/completions: a conversation becomes a prompt, the answer comes back as a message.

A stream's chunks, per choice: the role with empty content, content as it comes, an empty delta with
the finish_reason; with `include_usage` a chunk without choices; then `[DONE]`. As in vLLM
(`serving_chat.py`), the role chunks of all choices are sent when the first token of any choice arrives,
so that a client can measure the time to first token by its first chunk. A stream that fails before
that starts with the error.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from engine.scheduling.sampling_params import SamplingParams
from engine.text.tokenizer import Tokenizer
from server.api.openai.logprobs import chat_logprobs
from server.api.openai.wire import DONE, Envelope, count, usage
from server.core.continuation import encode_continuation
from server.core.request_stream import OutputDelta, Prompt, RequestStream
from server.http.streaming import sse


def encode_conversation(messages: Sequence[dict[str, Any]], tokenizer: Tokenizer) -> list[int]:
    """The conversation's prompt as token ids, safe from special tokens in what people wrote.

    A message that says "<|user_end|>" means these characters; as a control token it would end the
    user's turn and let the rest speak for somebody else. Such content is kept out of the template
    and put in afterwards as ordinary text. What the assistant wrote keeps its special tokens: the
    model wrote them itself, and a second turn finds them in the prefix cache.
    """
    apart: dict[str, str] = {}  # placeholder -> content
    safe = []
    everything = repr(messages)
    for message in messages:
        content = message["content"]
        if message["role"] != "assistant" and _has_special(content, tokenizer):
            placeholder = f"[content {len(apart)}]"
            while placeholder in everything:
                placeholder = f"[{placeholder}]"
            apart[placeholder] = content
            message = message | {"content": placeholder}  # noqa: PLW2901
        safe.append(message)
    text = tokenizer.chat_template.render(safe)
    tokens: list[int] = []
    for placeholder, content in apart.items():
        before, _, text = text.partition(placeholder)
        tokens += encode_continuation(before, tokenizer) if tokens else tokenizer.encode(before)
        tokens += tokenizer.encode_ordinary(content)
    return tokens + (encode_continuation(text, tokenizer) if tokens else tokenizer.encode(text))


def _has_special(text: str, tokenizer: Tokenizer) -> bool:
    """Whether `encode` would make a special token of something in this text."""
    return encode_continuation(text, tokenizer) != tokenizer.encode_ordinary(text)


def chat_prompts(
    messages: Sequence[dict[str, Any]],
    params: SamplingParams,
    tokenizer: Tokenizer,
    *,
    room: int | None,
) -> list[Prompt]:
    """The one prompt of a chat. With `room`, prompt and answer are made to fit into it."""
    tokens = encode_conversation(messages, tokenizer)
    if room is not None:
        fitting = max(1, min(params.max_tokens, room - len(tokens)))
        params = msgspec.structs.replace(params, max_tokens=fitting)
    return [Prompt(tokens, params)]


class ChatSerializer:
    """The Form of a chat stream; `render` is the same answer whole.

    Where log-probabilities are asked for, every token is told of, also those that give no text.
    """

    done = DONE

    def __init__(self, model: str, tokenizer: Tokenizer, *, include_usage: bool) -> None:
        self._chunks = Envelope("chatcmpl", "chat.completion.chunk", model)
        self._model = model
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._tokens = 0
        self._roles_sent = False

    def begin(self, generation: RequestStream) -> None:
        """See `ResponseSerializer`."""
        self._generation = generation

    def chunk(self, gain: OutputDelta) -> bytes:
        """The text so far unsent, then the end if this is it; the first time, the roles before that."""
        self._tokens += len(gain.ids)
        text, logprobs = "".join(gain.texts), self._logprobs(gain)
        data = b"" if self._roles_sent else self._roles()
        self._roles_sent = True
        if text or logprobs:
            data += self._chunk(gain.choice, {"content": text}, logprobs)
        if gain.finish_reason:
            data += self._chunk(gain.choice, {}, None, gain.finish_reason)
        return data

    def closing(self) -> bytes:
        """Token counts, if asked for."""
        if not self._include_usage:
            return b""
        return sse(self._chunks.wrap([], usage=usage(self._generation, self._tokens)))

    def render(self, generation: RequestStream, choices: list[OutputDelta]) -> dict[str, Any]:
        """The whole response."""
        messages = [
            {
                "index": choice.choice,
                "message": {
                    "role": "assistant",
                    "content": "".join(choice.texts),
                    "refusal": None,
                },
                "logprobs": self._logprobs(choice),
                "finish_reason": choice.finish_reason,
            }
            for choice in choices
        ]
        counts = usage(generation, count(choices))
        return Envelope("chatcmpl", "chat.completion", self._model).wrap(messages, usage=counts)

    def _roles(self) -> bytes:
        choices = sum(prompt.params.n for prompt in self._generation.prompts)
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(index, role) for index in range(choices))

    def _logprobs(self, gain: OutputDelta) -> dict[str, Any] | None:
        if gain.logprobs is None:
            return None
        return chat_logprobs(gain.ids, gain.logprobs, self._tokenizer)

    def _chunk(
        self,
        index: int,
        delta: dict[str, str],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return sse(self._chunks.wrap([choice]))
