"""The routes of OpenAI's API. Each builds a GenerationRequest and the serializer of its response."""

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response

from server.api.json_route import JsonRoute
from server.api.openai.chat import ChatRequest, ChatSerializer, encode_chat, template_messages
from server.api.openai.completions import CompletionRequest, CompletionSerializer, encode_prompts
from server.api.openai.requests import SamplingRequest
from server.api.openai.responses import CHAT_COMPLETION, COMPLETION, Model, ModelList
from server.api.teaching import TeachingSerializer
from server.core.bridge import Bridge
from server.core.models import Models
from server.core.request_stream import GenerationRequest, Prompt
from server.http.errors import no_model
from server.http.request_log import label_in
from server.http.streaming import StreamedAnswer, WholeAnswer

# OpenAI's defaults. The teaching stream is greedy, so that a whole class sees the same text.
OPENAI_TEMPERATURE = 1.0
OPENAI_MAX_TOKENS = 16
TEACHING_MAX_TOKENS = 50

Client = Annotated[
    str | None, Header(alias="X-Client", description="The request's label in the event log.")
]


def routes(models: Models) -> APIRouter:
    """Return the routes /v1/completions, /v1/chat/completions and /v1/models."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], route_class=JsonRoute)
    settings = models.settings
    created = int(time.time())

    @router.post("/completions", responses=COMPLETION)
    async def completions(body: CompletionRequest, x_client: Client = None) -> Response:
        """Continue a text. Without `model` and `stream` in the body: the teaching stream."""
        params = body.sampling(
            max_tokens=TEACHING_MAX_TOKENS if body.is_teaching else OPENAI_MAX_TOKENS,
            temperature=0.0 if body.is_teaching else OPENAI_TEMPERATURE,
        )
        prompts = body.prompts()
        request = _request(body, x_client, partial(encode_prompts, prompts, params))
        if body.is_teaching:
            return StreamedAnswer(models, body.model, request, TeachingSerializer())
        serializer = CompletionSerializer(
            body.model or settings.model_name,
            prompts,
            body.options,
            include_usage=body.include_usage,
        )
        answer = StreamedAnswer if body.stream else WholeAnswer
        return answer(models, body.model, request, serializer)

    @router.post("/chat/completions", responses=CHAT_COMPLETION)
    async def chat_completions(body: ChatRequest, x_client: Client = None) -> Response:
        """Answer a conversation."""
        params = body.sampling(max_tokens=settings.chat_max_tokens, temperature=OPENAI_TEMPERATURE)
        messages = template_messages(body.messages)
        encode = partial(encode_chat, messages, params, fit=body.output_limit is None)
        serializer = ChatSerializer(
            body.model or settings.model_name, include_usage=body.include_usage
        )
        answer = StreamedAnswer if body.stream else WholeAnswer
        return answer(models, body.model, _request(body, x_client, encode), serializer)

    @router.get("/models", response_model=ModelList, response_model_exclude_unset=True)
    async def list_models() -> dict[str, Any]:
        """List the models that requests can name; with `--model auto`, also which are loaded."""
        return {"object": "list", "data": [entry(*one) for one in models.names().items()]}

    @router.get("/models/{name:path}", response_model=Model, response_model_exclude_unset=True)
    async def one_model(name: str) -> dict[str, Any]:
        """Describe one model. A server with only one model also answers requests that name another."""
        names = models.names()
        if name not in names:
            raise no_model(name)
        return entry(name, names[name])

    def entry(name: str, loaded: bool) -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": created, "owned_by": "underglass"}
        return model | ({"loaded": loaded} if models.directory else {})

    return router


def _request(
    body: SamplingRequest, x_client: str | None, encode: Callable[[Bridge], list[Prompt]]
) -> GenerationRequest:
    label = label_in(x_client or "") or body.label
    return GenerationRequest(encode, label, body.priority or 0, body.fields)
