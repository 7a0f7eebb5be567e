"""Admission: how long a request's texts may be, how much may wait, and when a client should retry.

Texts are checked before they are tokenized. All requests share one tokenizer thread, which takes 1 to 2
microseconds per character (measured with the bundled tokenizer; a chat takes three times as long).
Without a limit, one body could delay every other request by seconds, either with a single prompt that
turns out to be too long or with a batch of prompts that each just fit. There are two limits, and both
depend on the context length:

    all texts of a request    `CHARACTERS_PER_TOKEN` per token of context, at least
                              `LEAST_CHARACTERS` and at most `MAX_CHARACTERS`
    each text                 the length of the vocabulary's longest token, per token of context

The queue is limited both in requests and in tokens, because thirty short questions are far less work
than thirty books. A request's token count is its prompt plus its maximum output, the most work it can
cause. The request limit is checked before the prompt is tokenized; the token limit is checked
afterwards, when the number of tokens is known.

`Retry-After` is the time the engine needs, at its recent speed, to work through half of the queue. A
client that retries then finds room in the queue, and the engine has not run out of work.

Source: vLLM limits waiting requests and tokens (`max_num_queued_reqs`, `max_num_queued_tokens`); SGLang
limits requests (`--max-queued-requests`). RFC 9110, section 10.2.3, defines `Retry-After`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.core.log.fold import State
from engine.core.scheduling.admission import ContextLengthError, RequestError
from engine.core.tokenizer import Tokenizer, TokenizerError
from engine.models.text.chat_template import ChatTemplateError
from server.core.commands import Prompt
from server.core.measures import Measures
from server.core.settings import ServerSettings
from server.http.errors import ApiError, bad_request, too_many

if TYPE_CHECKING:
    from server.core.bridge import Bridge

CHARACTERS_PER_TOKEN = 8  # English text has 4 to 5 characters per token
LEAST_CHARACTERS = 1 << 16  # about 0.1 s of the tokenizer thread; allows a batch of short prompts
MAX_CHARACTERS = 1 << 20
MAX_RETRY_SECONDS = 60  # OpenAI's SDKs ignore a longer Retry-After


def max_request_tokens(bridge: "Bridge") -> int:
    """Return how many tokens a prompt and its output may have; the last token needs no KV slot."""
    slots = bridge.config.num_blocks * bridge.config.block_size + 1
    return min(slots, bridge.max_context or slots)


def check_length(characters: Iterable[int], bridge: "Bridge", *, truncated: bool = False) -> None:
    """Raise ContextLengthError if a prompt's texts of these lengths are too long to tokenize.

    characters   the length of each text
    truncated    whether the tokens are cut afterwards, so that a single text may be longer
    """
    lengths, tokens = list(characters), max_request_tokens(bridge)
    total, longest_text = sum(lengths), max(lengths, default=0)
    limit = min(MAX_CHARACTERS, max(LEAST_CHARACTERS, CHARACTERS_PER_TOKEN * tokens))
    if total > limit:
        raise ContextLengthError(
            "prompt",
            f"the texts have {total} characters, and the limit is {limit}: send fewer or shorter texts",
            tokens,
        )
    if (
        truncated or longest_text <= tokens
    ):  # true of nearly every text; skips the search through the vocabulary
        return
    longest = _longest_token(bridge.tokenizer)  # type: ignore[arg-type] # hashed by identity
    if longest_text > tokens * longest:
        raise ContextLengthError(
            "prompt",
            f"a text has {longest_text} characters, and {tokens} tokens of at most {longest} bytes "
            "cannot hold them: shorten it",
            tokens,
        )


@contextmanager
def as_api_errors(fields: Mapping[str, str]) -> Iterator[None]:
    """Turn what is wrong with a request's prompt or parameters into an ApiError 400.

    fields   the engine's field names -> the client's, where they differ
    """
    try:
        yield
    except RequestError as error:
        field = fields.get(error.field, error.field)
        message = str(error).removeprefix(f"{error.field}: ")
        if isinstance(error, ContextLengthError):
            # In OpenAI's words: clients such as litellm recognise this error by them.
            told = (
                f"This model's maximum context length is {error.longest} tokens. However, {message}"
            )
            raise bad_request(field, told, "context_length_exceeded") from error
        raise bad_request(field, f"{field}: {message}") from error
    except (TokenizerError, ChatTemplateError) as error:
        raise bad_request(fields.get("prompt", "prompt"), str(error)) from error


def characters_in(messages: Iterable[Mapping[str, object]]) -> int:
    """Count a conversation's characters at any depth; a chat template may render all of them."""
    return sum(_characters(value) for message in messages for value in message.values())


def _characters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(one) for key, one in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0


@lru_cache(maxsize=16)
def _longest_token(tokenizer: Tokenizer) -> int:
    return max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))


class Admission:
    """The limits of one engine's queue. Lives on the event loop."""

    def __init__(self, settings: ServerSettings, state: State, measures: Measures) -> None:
        """Set up the limits. `state` is the log, folded, and `measures` counts it; both change."""
        self._settings = settings
        self._state = state
        self._measures = measures

    def check_requests(self, pending: int) -> None:
        """Raise ApiError 429 if the queue is full; `pending` more requests are about to join it."""
        waiting, limit = len(self._state.waiting) + pending, self._settings.max_waiting
        if waiting >= limit:
            raise self._full(f"{waiting} requests are waiting, and the limit is {limit}", 0)

    def check_tokens(self, prompts: list[Prompt], pending: int) -> int:
        """Return the tokens of these prompts and their maximum output.

        Raises ApiError 429 if the queue has no room for them. `pending` counts the tokens of requests
        that are not in the queue yet. An empty queue accepts any request that the engine can serve,
        however large.
        """
        waiting, limit = self._tokens_waiting() + pending, self._settings.max_waiting_tokens
        added = sum(len(one.tokens) + one.params.samples * one.params.max_tokens for one in prompts)
        if waiting and waiting + added > limit:
            message = (
                f"{waiting} tokens are waiting, and {added} more would exceed the limit of {limit}"
            )
            raise self._full(message, pending)
        return added

    def _tokens_waiting(self) -> int:
        requests = (self._state.requests[id_] for id_ in self._state.waiting)
        return sum(one.prompt_length + one.num_seqs * one.max_tokens for one in requests)

    def _full(self, message: str, pending: int) -> ApiError:
        waiting, steps = self._tokens_waiting() + pending, self._measures.recent_steps
        computed, seconds = sum(tokens for tokens, _ in steps), 1
        if computed:
            duration = sum(microseconds for _, microseconds in steps) / 1e6
            seconds = math.ceil(waiting / 2 * duration / computed)
            seconds = min(MAX_RETRY_SECONDS, max(1, seconds))
        return too_many(f"{message}: try again in {seconds} s", "queue_full", seconds)
