"""`/tokenize` and `/detokenize`: a prompt as the model sees it, in vLLM's format.

    POST /tokenize   {"prompt": "Once upon"}  ->  {"tokens": [...], "token_strs": [...], ...}
    POST /detokenize {"tokens": [...]}        ->  {"prompt": "Once upon"}

The ids are exactly the ones that the model would get for a completion of this prompt or these messages.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from engine.scheduling.admission import RequestError
from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
from server.api.json_route import JsonRoute
from server.api.openai.chat import (
    MAX_MESSAGES,
    ChatMessage,
    encode_conversation,
    template_messages,
)
from server.api.openai.requests import FIRST_ERROR
from server.core.admission import characters_in, check_length
from server.core.bridge import Bridge
from server.core.models import Models
from server.http.errors import bad_request

_MODEL = Field(None, description="The model whose tokenizer is used; by default the first.")


class TokenizeRequest(BaseModel):
    """A body for /tokenize: a text or a conversation."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = _MODEL
    prompt: str | None = Field(None, description="Text.", examples=["Once upon a time"])
    messages: Annotated[list[ChatMessage], FIRST_ERROR] | None = Field(
        None, max_length=MAX_MESSAGES, description="A conversation, instead of prompt."
    )


class TokenizeResponse(BaseModel):
    """Token ids. Joining `token_strs` gives the text; `max_model_len` is null without a limit."""

    tokens: list[int]
    token_strs: list[str]
    count: int
    max_model_len: int | None


class DetokenizeRequest(BaseModel):
    """A body for /detokenize."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = _MODEL
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], FIRST_ERROR] = Field(
        description="Token ids.", examples=[[72, 105]]
    )


class DetokenizeResponse(BaseModel):
    """The text. Bytes that are not valid UTF-8 become U+FFFD."""

    prompt: str


def routes(models: Models) -> APIRouter:
    """/tokenize and /detokenize. A model that a body names is loaded."""
    router = APIRouter(tags=["Tokens"], route_class=JsonRoute)

    @router.post("/tokenize", response_model=TokenizeResponse)
    async def tokenize(body: TokenizeRequest) -> Response:
        """Return the token ids of a text or a conversation."""
        if (body.prompt is None) == (body.messages is None):
            raise bad_request("prompt", "prompt or messages: send exactly one of them")
        text = template_messages(body.messages) if body.messages is not None else body.prompt or ""
        field = "prompt" if body.messages is None else "messages"
        try:
            async with models.lease(body.model) as bridge:
                return await asyncio.to_thread(_tokenize, text, field, bridge)
        except RequestError as error:
            raise bad_request(error.field, str(error)) from error
        except (TokenizerError, ChatTemplateError) as error:
            raise bad_request(field, str(error)) from error

    @router.post("/detokenize", response_model=DetokenizeResponse)
    async def detokenize(body: DetokenizeRequest) -> Response:
        """Return the text of token ids."""
        async with models.lease(body.model) as bridge:
            tokenizer = bridge.tokenizer
            last = tokenizer.vocab_size - 1
            if (largest := max(body.tokens, default=0)) > last:
                raise bad_request("tokens", f"tokens must be ids from 0 to {last}, got {largest}")
            return await asyncio.to_thread(
                lambda: _json(DetokenizeResponse(prompt=tokenizer.decode(body.tokens)))
            )

    return router


def _tokenize(text: str | list[dict[str, Any]], field: str, bridge: Bridge) -> Response:
    """Tokenize a text or a conversation. Raises RequestError if it is too long."""
    check_length([len(text) if isinstance(text, str) else characters_in(text)], bridge, field)
    tokenizer = bridge.tokenizer
    ids = tokenizer.encode(text) if isinstance(text, str) else encode_conversation(text, tokenizer)
    return _json(
        TokenizeResponse(
            tokens=ids,
            token_strs=tokenizer.pieces(ids),
            count=len(ids),
            max_model_len=bridge.max_context,
        )
    )


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
