"""`/tokenize` and `/detokenize`: what a prompt is to the model, in vLLM's form.

    POST /tokenize   {"prompt": "Once upon"}  ->  {"tokens": [...], "token_strs": [...], ...}
    POST /detokenize {"tokens": [...]}        ->  {"prompt": "Once upon"}

The ids are exactly those that a request with this prompt, or these messages, would compute.
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
from server.api.openai.bodies import BodyRoute
from server.api.openai.chat import encode_conversation
from server.api.openai.requests import MAX_MESSAGES, ChatMessage, conversation
from server.api.openai.sampling_fields import FIRST_ERROR
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.prompt_length import characters_in
from server.http.errors import bad_request

MAX_CHARACTERS = 1 << 18  # more than a second's work


class TokenizeRequest(BaseModel):
    """A body for /tokenize: a text, or a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = Field(None, description="Whose tokenizer; the first model's by default.")
    prompt: str | None = Field(None, description="Text.", examples=["Once upon a time"])
    messages: Annotated[list[ChatMessage], FIRST_ERROR] | None = Field(
        None, max_length=MAX_MESSAGES, description="Or a conversation."
    )


class TokenizeResponse(BaseModel):
    """Token ids; joined, `token_strs` are the text. `max_model_len` is null where there is no limit."""

    tokens: list[int]
    token_strs: list[str]
    count: int
    max_model_len: int | None


class DetokenizeRequest(BaseModel):
    """A body for /detokenize."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = Field(None, description="Whose tokenizer; the first model's by default.")
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], FIRST_ERROR] = Field(
        description="Token ids.", examples=[[72, 105]]
    )


class DetokenizeResponse(BaseModel):
    """The text. Bytes that are no UTF-8 are U+FFFD."""

    prompt: str


def routes(models: Models) -> APIRouter:
    """Both routes; a model that is named is loaded."""
    router = APIRouter(tags=["Tokens"], route_class=BodyRoute)

    @router.post("/tokenize", response_model=TokenizeResponse)
    async def tokenize(body: TokenizeRequest) -> Response:
        """The token ids of a text or a conversation."""
        prompt, messages = body.prompt, body.messages
        if (prompt is None) == (messages is None):
            raise bad_request("prompt", "prompt or messages: send one of the two")
        chat = None if messages is None else conversation(messages)
        field = "prompt" if messages is None else "messages"
        if len(prompt or "") + characters_in(chat or []) > MAX_CHARACTERS:
            raise bad_request(field, f"{field}: {MAX_CHARACTERS} characters are the limit")

        def work(bridge: Bridge) -> Response:
            tokenizer = bridge.tokenizer
            ids = (
                encode_conversation(chat or [], tokenizer)
                if prompt is None
                else tokenizer.encode(prompt)
            )
            return _json(
                TokenizeResponse(
                    tokens=ids,
                    token_strs=tokenizer.pieces(ids),
                    count=len(ids),
                    max_model_len=bridge.max_context,
                )
            )

        try:
            async with models.lease(body.model) as bridge:
                return await asyncio.to_thread(work, bridge)
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(field, str(error)) from error

    @router.post("/detokenize", response_model=DetokenizeResponse)
    async def detokenize(body: DetokenizeRequest) -> Response:
        """The text of token ids."""
        async with models.lease(body.model) as bridge:
            tokenizer = bridge.tokenizer
            last = tokenizer.vocab_size - 1
            if (largest := max(body.tokens, default=0)) > last:
                raise bad_request("tokens", f"tokens: ids go from 0 to {last}, got {largest}")
            return await asyncio.to_thread(
                lambda: _json(DetokenizeResponse(prompt=tokenizer.decode(body.tokens)))
            )

    return router


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
