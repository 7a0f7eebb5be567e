"""The common part of the serializers of OpenAI's endpoints, and the schemas of their responses.

Log-probabilities have two formats:

    completions   four lists with one entry per token
    chat          one object per token

A token is named by its own text, regardless of its neighbours. A token that holds only part of a
character is named U+FFFD. In the first format, several tokens may share that name, and only the most
likely of them is listed. In the second format, their `bytes` differ.

Serializers (`completions.py`, `chat.py`) write plain dicts. The pydantic models below only describe
responses in the OpenAPI document: building them for each token would cost more than the token itself. A
test compares real responses with the document.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from engine.core.request import TokenScore
from engine.core.tokenizer import Tokenizer
from server.api.openai.requests import SamplingRequest
from server.core.commands import Logprobs, OutputDelta, Prompt
from server.core.request_stream import RequestStream
from server.http.streaming import EVENT, sse

FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]

# JSON has no infinity. OpenAI uses the same number for a token with probability 0.
_LEAST = -9999.0


class OpenAISerializer:
    """The common part of both endpoints' serializers: the id, the time and the token counts.

    id_prefix    the beginning of the response's id
    kind         the `object` of a chunk or response
    num_tokens   output tokens so far, in all choices
    with_token_ids  whether the client asked for token ids
    """

    id_prefix: str
    kind: str
    done = b"data: [DONE]\n\n"

    def __init__(
        self, body: SamplingRequest, default_model: str, stream: RequestStream, tokenizer: Tokenizer
    ) -> None:
        self.stream = stream
        self.tokenizer = tokenizer
        self.num_tokens = 0
        self.with_token_ids = bool(body.return_token_ids)
        self._counts: dict[int, int] = {}  # choice -> its output tokens so far
        self._id = body.rid or f"{self.id_prefix}-{body.request_id or stream.name.id(32)}"
        self._created = stream.name.created
        self._model = body.model or default_model
        options = body.stream_options
        self._include_usage = options is not None and bool(options.include_usage)
        self._continuous_usage = self._include_usage and bool(
            options is not None and options.continuous_usage_stats
        )

    def wrap(self, choices: list[dict[str, Any]], **more: object) -> dict[str, Any]:
        """Return a response or chunk with these choices."""
        head = {"id": self._id, "object": self.kind, "created": self._created, "model": self._model}
        return head | {"choices": choices} | more

    def closing(self) -> bytes:
        """See `StreamSerializer`. The last chunk has the token counts, if the client asked for them."""
        return sse(self.wrap([], usage=self.usage())) if self._include_usage else b""

    def prompt_of(self, choice: int) -> Prompt:
        """Return a choice's prompt."""
        return self.stream.prompts[choice // self.stream.prompts[0].params.n]

    def is_first(self, choice: int) -> bool:
        """Return whether a choice has had no delta yet."""
        return choice not in self._counts

    def count(self, choice: int, tokens: int) -> None:
        """Count output tokens of a choice."""
        self.num_tokens += tokens
        self._counts[choice] = self._counts.get(choice, 0) + tokens

    def usage_so_far(self, choice: int) -> dict[str, Any]:
        """Return the `usage` of a choice's chunk, if the client asked for `continuous_usage_stats`."""
        if not self._continuous_usage:
            return {}
        prompt_tokens = len(self.prompt_of(choice).tokens)
        tokens = self._counts.get(choice, 0)
        counts = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        }
        return {"usage": counts}

    def usage(self) -> dict[str, Any]:
        """Return the token counts. `cached_tokens` are prompt tokens found in the prefix cache."""
        prompt_tokens = self.stream.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.num_tokens,
            "total_tokens": prompt_tokens + self.num_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(self.stream.cached_tokens)},
        }


class LogprobLists:
    """Log-probabilities in the format of completions, built token by token.

    The lists describe one piece of a choice's text. `offset` is the position in that text, in
    characters, at which the next token begins. Tokens that a stop string removed from the text are also
    listed; their offsets are at the end of the text or beyond.
    """

    def __init__(self, tokenizer: Tokenizer, offset: int) -> None:
        self._tokenizer = tokenizer
        self.offset = offset
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._top: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def add_prompt(
        self, ids: Sequence[int], pieces: Sequence[str], scores: Sequence[TokenScore], most: int
    ) -> None:
        """Add the prompt's tokens, with at most `most` of the most likely ones at each position.

        `scores` starts with the second token: the first has no context.
        """
        self._add(ids[0], pieces[0], None, [])
        for token, piece, score in zip(ids[1:], pieces[1:], scores, strict=True):
            self._add(token, piece, score.logprob, score.top[:most])

    def add(self, ids: Sequence[int], logprobs: Logprobs) -> None:
        """Add tokens of the output."""
        pieces, chosen, top = logprobs.pieces, logprobs.chosen, logprobs.top
        for token, piece, logprob, likeliest in zip(ids, pieces, chosen, top, strict=True):
            self._add(token, piece, logprob, likeliest)

    def _add(
        self, token: int, piece: str, logprob: float | None, top: Iterable[tuple[int, float]]
    ) -> None:
        self._tokens.append(_text(token, self._tokenizer))
        self._logprobs.append(None if logprob is None else max(logprob, _LEAST))
        self._top.append(None if logprob is None else self._by_text([*top, (token, logprob)]))
        self._offsets.append(self.offset)
        self.offset += len(piece)

    def _by_text(self, pairs: Iterable[tuple[int, float]]) -> dict[str, float]:
        largest: dict[str, float] = {}
        for token, logprob in pairs:
            text = _text(token, self._tokenizer)
            largest[text] = max(logprob, largest.get(text, _LEAST))
        return largest

    def to_json(self) -> dict[str, Any]:
        """Return the lists under OpenAI's names."""
        return {
            "text_offset": self._offsets,
            "token_logprobs": self._logprobs,
            "tokens": self._tokens,
            "top_logprobs": self._top,
        }


def chat_logprobs(delta: OutputDelta, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Return log-probabilities in the format of chat; None if the request did not ask for them."""
    logprobs = delta.logprobs
    if logprobs is None:
        return None
    content = [
        _entry(token, logprob, tokenizer)
        | {"top_logprobs": [_entry(*pair, tokenizer) for pair in top]}
        for token, logprob, top in zip(delta.ids, logprobs.chosen, logprobs.top, strict=True)
    ]
    return {"content": content, "refusal": None}


def prompt_logprobs(
    ids: Sequence[int], scores: Sequence[TokenScore], tokenizer: Tokenizer
) -> list[dict[int, dict[str, Any]] | None]:
    """Return the prompt's log-probabilities in vLLM's format (`vllm/logprobs.py`).

    The list has one object per token of the prompt, keyed by token id: the prompt's own token comes
    first, then the most likely tokens. The first token has no context, so its entry is null.
    """
    entries: list[dict[int, dict[str, Any]] | None] = [None]
    for token, score in zip(ids[1:], scores, strict=True):
        ranked = [(token, score.logprob, score.rank)]
        ranked += [(id_, logprob, rank) for rank, (id_, logprob) in enumerate(score.top, start=1)]
        entries.append(
            {
                id_: {
                    "logprob": max(logprob, _LEAST),
                    "rank": rank,
                    "decoded_token": _text(id_, tokenizer),
                }
                for id_, logprob, rank in ranked
            }
        )
    return entries


def echoed_pieces(prompt: str | list[int], ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return the prompt's text for `echo`, one piece per token.

    A BOS token that the tokenizer added to a text has an empty piece, because it is not part of the
    text.
    """
    pieces = tokenizer.pieces(ids)
    if isinstance(prompt, str) and ids[0] == tokenizer.bos_id and not prompt.startswith(pieces[0]):
        pieces[0] = ""
    return pieces


def _entry(token: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    text = data.decode("utf-8", errors="replace")
    return {"token": text, "logprob": max(logprob, _LEAST), "bytes": list(data)}


def _text(token: int, tokenizer: Tokenizer) -> str:
    return tokenizer.token_bytes(token).decode("utf-8", errors="replace")


# Schemas for the OpenAPI document


class PromptTokensDetails(BaseModel):
    """Details of prompt_tokens."""

    cached_tokens: int = Field(description="Prompt tokens found in the prefix cache.")


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(BaseModel):
    """Four lists with one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(BaseModel):
    """A token at a position of the prompt."""

    logprob: float
    rank: int = Field(description="1 is the most likely token of the vocabulary.")
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
StopReason = Annotated[
    int | str | None,
    Field(description="The stop string, or the token of stop_token_ids, that ended the output."),
]


class CompletionChoice(BaseModel):
    """One completion or, in a stream, a piece of one; the last piece has the finish_reason.

    `prompt_token_ids` and `token_ids` are present if the request has return_token_ids, and
    `prompt_logprobs` if it has prompt_logprobs. In a stream, only the first piece has
    `prompt_token_ids`.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: StopReason
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(BaseModel):
    """A response of /v1/completions, or a chunk of a stream.

    With include_usage, the last chunk has `usage`; with continuous_usage_stats, every chunk has it.
    """

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class TokenLogprob(BaseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenToken(TokenLogprob):
    """A token of the output, and the most likely tokens at its position."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    """One entry per token."""

    content: list[ChosenToken]
    refusal: None


class CalledFunction(BaseModel):
    """The function of a tool call."""

    name: str
    arguments: str = Field(description="JSON, as the model wrote it.")


class MessageToolCall(BaseModel):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(BaseModel):
    """The assistant's message."""

    role: str = Field(
        description="assistant; without a generation prompt, the role of the last message."
    )
    content: str | None = Field(description="null if there are only tool calls.")
    refusal: None
    tool_calls: list[MessageToolCall] | None = Field(
        None, description="Absent if there are no calls."
    )


class ChatChoice(BaseModel):
    """One sample."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    stop_reason: StopReason
    token_ids: list[int] | None = Field(None, description="Present with return_token_ids.")


class ChatCompletion(BaseModel):
    """A response of /v1/chat/completions.

    The chunks of a stream have the object `chat.completion.chunk`. Their `choices` have `delta` instead
    of `message`: first the role, then pieces of the content and of the tool calls, and finally an empty
    delta with the finish_reason and the stop_reason.
    """

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = Field(None, description="Present with return_token_ids.")
    prompt_logprobs: PromptLogprobs | None = Field(
        None, description="Present with prompt_logprobs."
    )


_COMPLETION_STREAM = """\
data: {"id": "cmpl-1", "object": "text_completion", "created": 1767225600, "model": "bundled", \
"choices": [{"index": 0, "text": " there was", "logprobs": null, "finish_reason": "length", \
"stop_reason": null}]}

data: [DONE]

"""
_TEACHING_STREAM = """\
data: {"token": " there", "token_id": 311, "is_first": true, "ttft_ms": 12.4}

data: {"token": " was", "token_id": 285, "is_first": false}

data: {"done": true, "full_text": " there was", "finish_reason": "length"}

"""
_CHAT_STREAM = """\
data: {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1767225600, "model": \
"bundled", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, \
"finish_reason": null}]}

data: [DONE]

"""


def _streamed(
    model: type[BaseModel], text: str, **examples: str
) -> dict[int | str, dict[str, Any]]:
    values = {name: {"value": example} for name, example in examples.items()}
    stream = {"itemSchema": EVENT, "examples": values}
    return {200: {"model": model, "description": text, "content": {"text/event-stream": stream}}}


COMPLETION = _streamed(
    Completion,
    "The whole response as JSON. With stream: true, server-sent events that end with [DONE]. Without "
    "model and stream in the body, the teaching stream: one event per token.",
    stream=_COMPLETION_STREAM,
    teaching=_TEACHING_STREAM,
)
CHAT_COMPLETION = _streamed(
    ChatCompletion,
    "The whole response as JSON. With stream: true, server-sent events that end with [DONE].",
    stream=_CHAT_STREAM,
)
