"""Routes about the models: `/v1/models` lists them, `/tokenize` shows a prompt as token ids.

The format of `/tokenize` and `/detokenize` is vLLM's:

    POST /tokenize   {"prompt": "Once upon"}  ->  {"tokens": [...], "token_strs": [...], ...}
    POST /detokenize {"tokens": [...]}        ->  {"prompt": "Once upon"}

The ids are exactly those that the model would receive in a completion request with the same prompt or
messages.
"""

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from engine.core.tokenizer import encode_continuation
from server.api.openai.conversation import (
    MAX_MESSAGES,
    ChatMessage,
    TemplateFields,
    conversation_tokens,
    template_messages,
)
from server.api.openai.requests import FIRST_ERROR, Body
from server.api.openai.tools import tool_request
from server.core.admission import as_api_errors, check_length, max_request_tokens
from server.core.bridge import Bridge
from server.core.models import Models
from server.http.bodies import JsonRoute
from server.http.errors import bad_request, no_model


class Model(BaseModel):
    """A model that requests can name. The field `loaded` is present only with `--model auto`.

    `max_model_len` is the maximum number of tokens of a prompt and its output together; null if the
    model is not loaded. A LoRA adapter has a `parent`, the model that it adapts, and its `root` is the
    path of its files.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int | None
    loaded: bool | None = None


class ModelList(BaseModel):
    """The models that requests can name."""

    object: Literal["list"]
    data: list[Model]


_MODEL = Field(None, description="The model whose tokenizer is used; by default the first.")


class TokenizeRequest(TemplateFields, Body):
    """A body for /tokenize, with either a text or a conversation."""

    model: str | None = _MODEL
    prompt: str | None = Field(None, description="A text.", examples=["Once upon a time"])
    messages: Annotated[list[ChatMessage], FIRST_ERROR] | None = Field(
        None, max_length=MAX_MESSAGES, description="A conversation, instead of `prompt`."
    )
    add_special_tokens: bool | None = Field(
        None, description="false leaves out the beginning-of-sequence token; only with `prompt`."
    )
    return_token_strs: bool | None = Field(
        None, description="false leaves out token_strs, the text of each token."
    )


class TokenizeResponse(BaseModel):
    """Token ids. Joining `token_strs` gives the text.

    `max_model_len` is the maximum number of tokens of a prompt and its output together.
    """

    tokens: list[int]
    token_strs: list[str] | None
    count: int
    max_model_len: int


class DetokenizeRequest(Body):
    """A body for /detokenize."""

    model: str | None = _MODEL
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], FIRST_ERROR] = Field(
        description="Token ids.", examples=[[72, 105]]
    )
    skip_special_tokens: bool | None = Field(
        None,
        description="Leave special tokens out of the text. A field of SGLang's; false by default.",
    )


class DetokenizeResponse(BaseModel):
    """The text. Bytes that are not valid UTF-8 become U+FFFD."""

    prompt: str


def routes(models: Models) -> APIRouter:
    """Return the routes /v1/models, /tokenize and /detokenize.

    /tokenize and /detokenize load the model that a request names.
    """
    router = APIRouter(route_class=JsonRoute)
    created = int(time.time())

    def entry(name: str, loaded: bool) -> dict[str, Any]:
        length = max_request_tokens(models.viewed(name)) if loaded else None
        adapter, base = models.first.adapters.get(name), next(iter(models.names()))
        model = {"id": name, "object": "model", "created": created, "owned_by": "underglass"}
        model |= {"root": adapter.path if adapter else name, "parent": base if adapter else None}
        model["max_model_len"] = length
        return model | ({"loaded": loaded} if models.directory else {})

    @router.get(
        "/v1/models", tags=["OpenAI"], response_model=ModelList, response_model_exclude_unset=True
    )
    async def list_models() -> dict[str, Any]:
        """List the models that requests can name. With `--model auto`, say which are loaded."""
        return {"object": "list", "data": [entry(*named) for named in models.names().items()]}

    @router.get(
        "/v1/models/{name:path}",
        tags=["OpenAI"],
        response_model=Model,
        response_model_exclude_unset=True,
    )
    async def one_model(name: str) -> dict[str, Any]:
        """Describe one model. A server may also answer requests for a name that is not listed."""
        names = models.names()
        if name not in names:
            raise no_model(name)
        return entry(name, names[name])

    @router.post("/tokenize", tags=["Tokens"], response_model=TokenizeResponse)
    async def tokenize(body: TokenizeRequest) -> Response:
        """Return the token ids of a text or a conversation."""
        if (body.prompt is None) == (body.messages is None):
            raise bad_request("prompt", "prompt or messages: send exactly one of them")
        if body.messages is not None and body.add_special_tokens:
            raise bad_request(
                "add_special_tokens",
                "add_special_tokens needs prompt instead of messages: a chat template adds the special "
                "tokens itself",
            )
        for name in ("continue_final_message", "tools", "documents", "chat_template_kwargs"):
            if body.messages is None and getattr(body, name):
                raise bad_request(name, f"{name} needs messages instead of prompt")
        fields = {} if body.messages is None else {"prompt": "messages"}
        with as_api_errors(fields):
            async with models.lease(body.model) as bridge:
                return await asyncio.to_thread(_tokenize, body, bridge)

    @router.post("/detokenize", tags=["Tokens"], response_model=DetokenizeResponse)
    async def detokenize(body: DetokenizeRequest) -> Response:
        """Return the text of token ids."""
        async with models.lease(body.model) as bridge:
            tokenizer = bridge.tokenizer
            last = tokenizer.vocab_size - 1
            if (largest := max(body.tokens, default=0)) > last:
                raise bad_request("tokens", f"tokens must be ids from 0 to {last}, got {largest}")
            skipped = tokenizer.special_ids if body.skip_special_tokens else frozenset()
            ids = [token for token in body.tokens if token not in skipped]
            return await asyncio.to_thread(
                lambda: _json(DetokenizeResponse(prompt=tokenizer.decode(ids)))
            )

    return router


def _tokenize(body: TokenizeRequest, bridge: Bridge) -> Response:
    """Tokenize a text or a conversation. Raises RequestError if it is too long."""
    tokenizer = bridge.tokenizer
    if body.messages is not None:
        messages = template_messages(body.messages)
        tools = tool_request(body.tools, "none", None)
        shown = tools.tools if tools is not None else None
        ids = conversation_tokens(messages, shown, body.template_options(), bridge)
    else:
        text = body.prompt or ""
        check_length([len(text)], bridge)
        with_bos = body.add_special_tokens is not False
        ids = tokenizer.encode(text) if with_bos else encode_continuation(text, tokenizer)
    return _json(
        TokenizeResponse(
            tokens=ids,
            token_strs=None if body.return_token_strs is False else tokenizer.pieces(ids),
            count=len(ids),
            max_model_len=max_request_tokens(bridge),
        )
    )


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(), media_type="application/json")
