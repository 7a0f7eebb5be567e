"""The routes of OpenAI's API. Each says which form its answer has; the rest is the bridge's."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response

from server.errors import bad_request
from server.generation import Order
from server.models import Models
from server.openai.chat import ChatForm, chat_prompts
from server.openai.completions import CompletionForm, encode_prompts
from server.openai.requests import ChatRequest, CompletionRequest
from server.streaming import StreamedAnswer, WholeAnswer
from server.teaching import TeachingStream

# OpenAI's default. The teaching stream is greedy, so that everybody in a class sees the same text.
OPENAI_TEMPERATURE = 1.0
OPENAI_MAX_TOKENS = 16
TEACHING_MAX_TOKENS = 50

Label = Annotated[str | None, Header(alias="X-Client", description="Who asks, for the log.")]


def routes(models: Models) -> APIRouter:
    """/v1/completions, /v1/chat/completions and /v1/models."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    settings = models.settings
    created = int(time.time())

    @router.post("/completions")
    async def completions(body: CompletionRequest, x_client: Label = None) -> Response:
        """Continue a text. With neither `model` nor `stream` in the body: the teaching stream."""
        body.check_fields()
        teaching = body.model is None and body.stream is None
        params = body.sampling(
            max_tokens=TEACHING_MAX_TOKENS if teaching else OPENAI_MAX_TOKENS,
            temperature=0.0 if teaching else OPENAI_TEMPERATURE,
        )
        prompts = body.prompts()
        bridge = await models.serving(body.model)
        order = Order(
            lambda: encode_prompts(prompts, params, bridge.tokenizer),
            label=x_client or body.user or "",
            priority=body.priority or 0,
        )
        if teaching:
            if len(prompts) > 1 or params.n > 1:
                raise bad_request(
                    "prompt" if len(prompts) > 1 else "n",
                    "the teaching stream has one prompt and one answer: add stream: true for more",
                )
            return StreamedAnswer(bridge, order, TeachingStream())
        form = CompletionForm(body.model or settings.model_name, include_usage=body.include_usage)
        if body.stream:
            return StreamedAnswer(bridge, order, form)
        return WholeAnswer(bridge, order, form.render)

    @router.post("/chat/completions")
    async def chat_completions(body: ChatRequest, x_client: Label = None) -> Response:
        """Answer a conversation."""
        body.check_fields()
        params = body.sampling(max_tokens=settings.chat_max_tokens, temperature=OPENAI_TEMPERATURE)
        messages = body.conversation()
        bridge = await models.serving(body.model)
        slots = bridge.config.num_blocks * bridge.config.block_size
        room = min(slots + 1, bridge.max_context or slots + 1)
        order = Order(
            lambda: chat_prompts(
                messages,
                params,
                bridge.tokenizer,
                room=None if body.output_limit is not None else room,
            ),
            fields=body.fields,
            label=x_client or body.user or "",
            priority=body.priority or 0,
        )
        form = ChatForm(body.model or settings.model_name, include_usage=body.include_usage)
        if body.stream:
            return StreamedAnswer(bridge, order, form)
        return WholeAnswer(bridge, order, form.render)

    @router.get("/models")
    async def list_models() -> dict[str, Any]:
        """The models that are served; with `--model auto`, which are `loaded`, too."""
        common = {"object": "model", "created": created, "owned_by": "underglass"}
        data = [
            {"id": name} | common | ({"loaded": loaded} if models.directory else {})
            for name, loaded in models.names().items()
        ]
        return {"object": "list", "data": data}

    return router
