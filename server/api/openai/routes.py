"""The routes of OpenAI's API. Each says which form its answer has; the rest is the bridge's."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response

from server.api.openai.answers import CHAT_COMPLETION, COMPLETION, Model, ModelList
from server.api.openai.bodies import BodyRoute
from server.api.openai.chat import ChatSerializer, chat_prompts
from server.api.openai.completions import CompletionSerializer, encode_prompts
from server.api.openai.requests import ChatRequest, CompletionRequest, conversation
from server.api.teaching import TeachingStream
from server.core.bridge import Bridge
from server.core.labels import label_in
from server.core.models import Models
from server.core.prompt_length import characters_in, check_length, room
from server.core.request_stream import GenerationRequest, Prompt
from server.http.errors import no_model
from server.http.streaming import StreamedAnswer, WholeAnswer

# OpenAI's default. The teaching stream is greedy, so that everybody in a class sees the same text.
OPENAI_TEMPERATURE = 1.0
OPENAI_MAX_TOKENS = 16
TEACHING_MAX_TOKENS = 50

Label = Annotated[str | None, Header(alias="X-Client", description="Who asks, for the log.")]


def routes(models: Models) -> APIRouter:
    """/v1/completions, /v1/chat/completions and /v1/models."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], route_class=BodyRoute)
    settings = models.settings
    created = int(time.time())

    @router.post("/completions", responses=COMPLETION)
    async def completions(body: CompletionRequest, x_client: Label = None) -> Response:
        """Continue a text. With neither `model` nor `stream` in the body: the teaching stream."""
        teaching = body.is_teaching
        params = body.sampling(
            max_tokens=TEACHING_MAX_TOKENS if teaching else OPENAI_MAX_TOKENS,
            temperature=0.0 if teaching else OPENAI_TEMPERATURE,
        )
        prompts = body.prompts()

        def order(bridge: Bridge) -> GenerationRequest:
            def prepare() -> list[Prompt]:
                check_length((len(prompt) for prompt in prompts if isinstance(prompt, str)), bridge)
                return encode_prompts(prompts, params, bridge.tokenizer)

            return GenerationRequest(
                prepare,
                fields=body.fields,
                label=label_in(x_client or "") or body.label,
                priority=body.priority or 0,
            )

        def form(bridge: Bridge) -> CompletionSerializer:
            return CompletionSerializer(
                body.model or settings.model_name,
                prompts,
                bridge.tokenizer,
                body.shown,
                include_usage=body.include_usage,
            )

        if teaching:
            return StreamedAnswer(
                models, body.model, order, lambda bridge: TeachingStream(bridge.tokenizer)
            )
        if body.stream:
            return StreamedAnswer(models, body.model, order, form)
        return WholeAnswer(models, body.model, order, form)

    @router.post("/chat/completions", responses=CHAT_COMPLETION)
    async def chat_completions(body: ChatRequest, x_client: Label = None) -> Response:
        """Answer a conversation."""
        params = body.sampling(max_tokens=settings.chat_max_tokens, temperature=OPENAI_TEMPERATURE)
        messages = conversation(body.messages)

        def order(bridge: Bridge) -> GenerationRequest:
            def prepare() -> list[Prompt]:
                check_length([characters_in(messages)], bridge)
                fit_into = room(bridge) if body.output_limit is None else None
                return chat_prompts(messages, params, bridge.tokenizer, room=fit_into)

            return GenerationRequest(
                prepare,
                fields=body.fields,
                label=label_in(x_client or "") or body.label,
                priority=body.priority or 0,
            )

        def form(bridge: Bridge) -> ChatSerializer:
            return ChatSerializer(
                body.model or settings.model_name,
                bridge.tokenizer,
                include_usage=body.include_usage,
            )

        if body.stream:
            return StreamedAnswer(models, body.model, order, form)
        return WholeAnswer(models, body.model, order, form)

    @router.get("/models", response_model=ModelList, response_model_exclude_unset=True)
    async def list_models() -> dict[str, Any]:
        """The models that are served; with `--model auto`, which are `loaded`, too."""
        return {"object": "list", "data": [entry(*one) for one in models.names().items()]}

    @router.get("/models/{name:path}", response_model=Model, response_model_exclude_unset=True)
    async def one_model(name: str) -> dict[str, Any]:
        """One of them. Requests may name others, too, where only one is served: it answers them."""
        names = models.names()
        if name not in names:
            raise no_model(name)
        return entry(name, names[name])

    def entry(name: str, loaded: bool) -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": created, "owned_by": "underglass"}
        return model | ({"loaded": loaded} if models.directory else {})

    return router
