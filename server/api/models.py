"""Routes about the models: `/v1/models` lists them, `/tokenize` shows a prompt as a model sees it.

The format of `/tokenize` and `/detokenize` is vLLM's:

    POST /tokenize   {"prompt": "Once upon"}  ->  {"tokens": [...], "token_strs": [...], ...}
    POST /detokenize {"tokens": [...]}        ->  {"prompt": "Once upon"}

The ids are exactly the ones that the model would get for a completion of this prompt or these messages.
"""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from engine.scheduling.admission import RequestError
from engine.text.chat_template import ChatTemplateError
from engine.text.tokenizer import TokenizerError
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
from server.http.bodies import JsonRoute
from server.http.errors import bad_request, no_model


class Model(BaseModel):
    """A model that requests can name. It has `loaded` only with `--model auto`."""

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    loaded: bool | None = None


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"]
    data: list[Model]


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
    """Return the routes /v1/models, /tokenize and /detokenize; the last two load a model they name."""
    router = APIRouter(route_class=JsonRoute)
    created = int(time.time())

    def entry(name: str, loaded: bool) -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": created, "owned_by": "underglass"}
        return model | ({"loaded": loaded} if models.directory else {})

    @router.get(
        "/v1/models", tags=["OpenAI"], response_model=ModelList, response_model_exclude_unset=True
    )
    async def list_models() -> dict[str, Any]:
        """List the models that requests can name; with `--model auto`, also which are loaded."""
        return {"object": "list", "data": [entry(*one) for one in models.names().items()]}

    @router.get(
        "/v1/models/{name:path}",
        tags=["OpenAI"],
        response_model=Model,
        response_model_exclude_unset=True,
    )
    async def one_model(name: str) -> dict[str, Any]:
        """Describe one model. A server with only one model also answers requests that name another."""
        names = models.names()
        if name not in names:
            raise no_model(name)
        return entry(name, names[name])

    @router.post("/tokenize", tags=["Tokens"], response_model=TokenizeResponse)
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

    @router.post("/detokenize", tags=["Tokens"], response_model=DetokenizeResponse)
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
