"""The routes of OpenAI's API: each turns its body into a request, and writes the answer in its form.

The routes that end with /render return a request as the engine would receive it, without running it. A
router in front of several servers asks for a prompt's token ids to find the server whose prefix cache
holds most of the prompt. The answers are those of vLLM (`vllm/entrypoints/scale_out/render`). The
parameters of vLLM's `SamplingParams` that this server does not have are absent.
"""

import uuid
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from server.api.openai import chat, completions
from server.api.openai.chat import ChatRequest, ChatSerializer
from server.api.openai.completions import (
    CompletionRequest,
    CompletionSerializer,
    TeachingSerializer,
)
from server.api.openai.requests import Client, SamplingRequest
from server.api.openai.response_events import RESPONSE, ResponseSerializer
from server.api.openai.response_request import ResponseRequest, own_name, renamed
from server.api.openai.responses import CHAT_COMPLETION, COMPLETION
from server.core.models import Models
from server.core.request_stream import GenerationRequest
from server.http.bodies import JsonRoute
from server.http.errors import ApiError
from server.http.streaming import Answer


class RenderedRequest(BaseModel):
    """One prompt and its parameters."""

    request_id: str
    model: str
    token_ids: list[int]
    sampling_params: dict[str, Any] = Field(
        description="All parameters, including those that the body does not set."
    )
    stream: bool
    priority: int
    cache_salt: str | None
    lora_name: str | None = Field(
        description="The LoRA adapter; `model` names it, too. vLLM has no such field."
    )
    features: None = Field(
        None, description="In vLLM, the parts of a prompt that are not text; here always null."
    )


def routes(models: Models) -> APIRouter:
    """Return the routes /v1/completions, /v1/chat/completions and /v1/responses, each with /render."""
    router = APIRouter(tags=["OpenAI"], route_class=JsonRoute)
    settings = models.settings

    def answer(body: SamplingRequest, request: GenerationRequest, serializer: Any) -> Response:
        return Answer(models, body.model, request, serializer, streamed=body.is_streamed)

    @router.post("/v1/completions", responses=COMPLETION)
    async def complete(body: CompletionRequest, x_client: Client = None) -> Response:
        """Continue a text. A body without `model` and `stream` gets the teaching stream."""
        request = completions.generation(body, x_client)
        if body.is_teaching:
            return answer(body, request, TeachingSerializer)
        return answer(body, request, partial(CompletionSerializer, body, settings.model_name))

    @router.post("/v1/chat/completions", responses=CHAT_COMPLETION)
    async def chat_completions(body: ChatRequest, x_client: Client = None) -> Response:
        """Answer a conversation."""
        request = chat.generation(body, x_client, settings)
        return answer(body, request, partial(ChatSerializer, body, settings))

    @router.post("/v1/responses", responses=RESPONSE)
    async def responses(body: ResponseRequest, x_client: Client = None) -> Response:
        """Answer a conversation with output items.

        Responses are not stored, so a client must send the whole conversation.
        """
        try:
            request = chat.generation(body.chat, x_client, settings)
        except ApiError as error:
            raise renamed(error) from error
        names = {name: own_name(field) for name, field in request.fields.items()}
        serializer = partial(ResponseSerializer, body, settings)
        return answer(body.chat, replace(request, fields=names), serializer)

    @router.post("/v1/completions/render", response_model=list[RenderedRequest])
    async def render_completion(body: CompletionRequest) -> Response:
        """Return each prompt's token ids and parameters; nothing is generated."""
        return _json(await _render(models, body, completions.generation(body, None)))

    @router.post("/v1/chat/completions/render", response_model=RenderedRequest)
    async def render_chat(body: ChatRequest) -> Response:
        """Return the conversation's token ids and parameters; nothing is generated."""
        [rendered] = await _render(models, body, chat.generation(body, None, settings))
        return _json(rendered)

    @router.post("/v1/responses/render", response_model=RenderedRequest)
    async def render_response(body: ResponseRequest) -> Response:
        """Return the conversation's token ids and parameters; nothing is generated.

        Differs from vLLM, which has no such route.
        """
        [rendered] = await _render(models, body.chat, chat.generation(body.chat, None, settings))
        return _json(rendered)

    return router


async def _render(
    models: Models, body: SamplingRequest, request: GenerationRequest
) -> list[dict[str, Any]]:
    """Return one `RenderedRequest` per prompt, as plain values."""
    async with models.lease(body.model) as bridge:
        adapter = body.model if body.model in bridge.adapters else None
        prompts = await bridge.encode(request)
    name = body.rid or body.request_id or uuid.uuid4().hex
    return [
        {
            "request_id": name if len(prompts) == 1 else f"{name}-{index}",
            "model": body.model or models.settings.model_name,
            "token_ids": prompt.tokens,
            "sampling_params": prompt.params,
            "stream": bool(body.stream),
            "priority": request.priority,
            "cache_salt": body.cache_salt,
            "lora_name": adapter,
            "features": None,
        }
        for index, prompt in enumerate(prompts)
    ]


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
