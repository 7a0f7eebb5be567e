"""The routes. Each is a few lines: what it takes, which form its answer has."""

import asyncio
import ipaddress
import time
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from server import errors
from server.bridge import Bridge
from server.errors import ApiError, bad_request, unavailable
from server.feed import Feed, trace
from server.middleware import ApiKey, RequestId
from server.openai.chat import ChatForm, chat_prompts
from server.openai.completions import CompletionForm, encode_prompts
from server.openai.requests import ChatRequest, CompletionRequest
from server.streaming import Order, StreamedAnswer, WholeAnswer
from server.teaching import TeachingStream

# OpenAI's default. The teaching stream is greedy, so that everybody in a class sees the same text.
OPENAI_TEMPERATURE = 1.0
OPENAI_MAX_TOKENS = 16
TEACHING_MAX_TOKENS = 50

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Underglass</title>
<h1>Underglass</h1><p>LLM inference, under glass. This server is running.</p><ul>
<li><a href="/docs">/docs</a>: every route, and what it takes
<li><a href="/health">/health</a>: what the engine is doing
<li><a href="/trace">/trace</a>: its event log</ul></html>
"""

Label = Annotated[str | None, Header(alias="X-Client", description="Who asks, for the log.")]


class StepRequest(BaseModel):
    """A body for /engine/step."""

    model_config = ConfigDict(strict=True, extra="forbid")

    steps: int = Field(1, ge=1, le=100_000, description="Steps to run.")


def create_app(bridge: Bridge) -> FastAPI:
    """The app over a bridge; `bridge.start()` must have been called before it serves."""
    settings = bridge.settings
    app = FastAPI(
        title="Underglass",
        description="LLM inference, under glass: OpenAI's API, and everything the engine does.",
        max_body_size=settings.max_body_bytes,
    )
    errors.install(app)
    if settings.api_key is not None:
        app.add_middleware(ApiKey, key=settings.api_key)
    app.add_middleware(RequestId)
    created = int(time.time())

    @app.post("/v1/completions", tags=["OpenAI"])
    async def completions(body: CompletionRequest, x_client: Label = None) -> Response:
        """Continue a text. With neither `model` nor `stream` in the body: the teaching stream."""
        body.check_fields()
        teaching = body.model is None and body.stream is None
        params = body.sampling(
            max_tokens=TEACHING_MAX_TOKENS if teaching else OPENAI_MAX_TOKENS,
            temperature=0.0 if teaching else OPENAI_TEMPERATURE,
        )
        prompts = body.prompts()
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

    @app.post("/v1/chat/completions", tags=["OpenAI"])
    async def chat_completions(body: ChatRequest, x_client: Label = None) -> Response:
        """Answer a conversation."""
        body.check_fields()
        params = body.sampling(max_tokens=settings.chat_max_tokens, temperature=OPENAI_TEMPERATURE)
        messages = body.conversation()
        slots = bridge.config.num_blocks * bridge.config.block_size
        room = min(slots + 1, bridge.max_context or slots + 1)
        order = Order(
            lambda: chat_prompts(
                messages,
                params,
                bridge.tokenizer,
                room=None if body.output_limit is not None else room,
            ),
            label=x_client or body.user or "",
            priority=body.priority or 0,
        )
        form = ChatForm(body.model or settings.model_name, include_usage=body.include_usage)
        if body.stream:
            return StreamedAnswer(bridge, order, form)
        return WholeAnswer(bridge, order, form.render)

    @app.get("/v1/models", tags=["OpenAI"])
    async def models() -> dict[str, Any]:
        """The model that is served."""
        model = {
            "id": settings.model_name,
            "object": "model",
            "created": created,
            "owned_by": "underglass",
        }
        return {"object": "list", "data": [model]}

    @app.get("/health", tags=["Operation"])
    async def health() -> dict[str, Any]:
        """What the engine is doing, as of its last step."""
        return _health(bridge)

    @app.get("/ready", tags=["Operation"])
    async def ready() -> dict[str, str]:
        """200 if requests are welcome; 503 while the server drains, hangs or has failed."""
        if bridge.not_ready:
            raise unavailable(bridge.not_ready, "not_ready")
        return {"status": "ready"}

    @app.get("/trace", tags=["Event log"])
    async def get_trace() -> Response:
        """The last part of the event log as JSON Lines; `EventLog.load` reads it."""
        body = await asyncio.to_thread(trace, bridge.window.trace())
        return Response(body, media_type="application/jsonl")

    @app.get("/events", tags=["Event log"])
    async def events(
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        """The event log as it happens (server-sent events); the first event is a keyframe."""
        known = (last_event_id or "").isdecimal()
        return Feed(bridge, int(last_event_id) if known and last_event_id else None)

    @app.post("/engine/pause", tags=["Teacher's controls"])
    async def pause(request: Request) -> dict[str, Any]:
        """Hold the engine: requests still queue up, no step runs."""
        _only_here(request, settings.api_key)
        return {"step": await bridge.pause(), "paused": True}

    @app.post("/engine/resume", tags=["Teacher's controls"])
    async def resume(request: Request) -> dict[str, Any]:
        """Let the engine go on."""
        _only_here(request, settings.api_key)
        return {"step": await bridge.resume(), "paused": False}

    @app.post("/engine/step", tags=["Teacher's controls"])
    async def step(request: Request, body: StepRequest | None = None) -> dict[str, Any]:
        """Run some steps of a held engine; answers with the last one's number when it has run."""
        _only_here(request, settings.api_key)
        return {"step": await bridge.step(body.steps if body else 1), "paused": True}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(PAGE)

    return app


def _health(bridge: Bridge) -> dict[str, Any]:
    state = bridge.window.state
    running = [state.requests[id_] for id_ in state.running]
    prefilling = sum(request.computed < request.prompt_length for request in running)
    status = "failed" if bridge.failure else "draining" if bridge.draining else "ok"
    return {
        "status": status,
        "step": state.step,
        "waiting": len(state.waiting),
        "prefilling": prefilling,
        "active": len(running) - prefilling,
        "pending_submit": bridge.pending_submit,
        "paused": bridge.paused,
        "blocks": {
            "total": len(state.refs),
            "free": len(state.free),
            "cached": sum(len(node.blocks) for node in state.nodes.values() if node.lock == 0),
        },
    }


def _only_here(request: Request, key: str | None) -> None:
    """Without a key, only this machine may hold the engine."""
    if key is None and not _is_loopback(request.client.host if request.client else ""):
        raise ApiError(
            403,
            "without a key the engine can be held from this machine only: start the server with "
            "--api-key to do it from others",
            type="permission_error",
            code="loopback_only",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
