"""The routes that watch over a server and hold its engine."""

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from engine.events.fold import State
from server.core.bridge import Bridge
from server.core.models import Models, ViewedModel
from server.core.settings import ServerSettings
from server.http.access import cross_site, is_loopback
from server.http.errors import ApiError, unavailable


class StepRequest(BaseModel):
    """A body for /engine/step."""

    model_config = ConfigDict(strict=True, extra="forbid")

    steps: int = Field(1, ge=1, le=100_000, description="Steps to run.")


class Blocks(BaseModel):
    """KV blocks. Those that are only `cached` are given up when somebody needs them; those that are
    neither free nor only cached belong to requests, or are held for LMTP's buffers.
    """

    total: int
    free: int
    cached: int


class Health(BaseModel):
    """What the engine is doing, as of its last step.

    "stuck": it has been in one step for too long. "failed": it does nothing any more.
    """

    status: Literal["ok", "stuck", "draining", "failed"]
    step: int = Field(description="Number of the last step.")
    waiting: int = Field(description="Requests in the queue.")
    prefilling: int = Field(description="Requests in the batch whose prompt is not computed yet.")
    active: int = Field(description="Requests in the batch that get tokens.")
    pending_submit: int = Field(description="Requests on their way to the queue.")
    paused: bool = Field(description="Whether somebody holds the engine.")
    blocks: Blocks


class Ready(BaseModel):
    """Requests are welcome."""

    status: Literal["ready"]


class Held(BaseModel):
    """Whether the engine is held, and the number of its last step."""

    step: int
    paused: bool


def routes(models: Models) -> APIRouter:
    """/health, /ready and /engine/... over the loaded models."""
    router = APIRouter()
    settings = models.settings

    @router.get("/health", tags=["Operation"])
    async def health(model: ViewedModel = None) -> Health:
        """What the engine is doing, as of its last step."""
        return _health(models.viewed(model))

    @router.get("/ready", tags=["Operation"])
    async def ready(model: ViewedModel = None) -> Ready:
        """200 if requests are welcome; 503 while the server drains, hangs or has failed."""
        if not_ready := models.viewed(model).not_ready:
            raise unavailable(not_ready, "not_ready")
        return Ready(status="ready")

    @router.post("/engine/pause", tags=["Teacher's controls"])
    async def pause(request: Request, model: ViewedModel = None) -> Held:
        """Hold the engine: requests still queue up, no step runs."""
        _only_here(request, settings)
        with models.commanded(model) as bridge:
            return Held(step=await bridge.pause(), paused=True)

    @router.post("/engine/resume", tags=["Teacher's controls"])
    async def resume(request: Request, model: ViewedModel = None) -> Held:
        """Let the engine go on."""
        _only_here(request, settings)
        with models.commanded(model) as bridge:
            return Held(step=await bridge.resume(), paused=False)

    @router.post("/engine/step", tags=["Teacher's controls"])
    async def step(
        request: Request, body: StepRequest | None = None, model: ViewedModel = None
    ) -> Held:
        """Run some steps of a held engine; answers with the last one's number when it has run."""
        _only_here(request, settings)
        steps = body.steps if body else 1
        with models.commanded(model) as bridge:
            return Held(step=await bridge.step(steps), paused=True)

    return router


def _health(bridge: Bridge) -> Health:
    state = bridge.window.state
    running = [state.requests[id_] for id_ in state.running]
    prefilling = sum(request.computed < request.prompt_length for request in running)
    return Health(
        status=_status(bridge),
        step=state.step,
        waiting=len(state.waiting),
        prefilling=prefilling,
        active=len(running) - prefilling,
        pending_submit=bridge.pending_submit,
        paused=bridge.paused,
        blocks=Blocks(
            total=len(state.refs),
            free=len(state.free),
            cached=only_cached(state),
        ),
    )


def only_cached(state: State) -> int:
    """Blocks of the prefix tree on which nobody depends now."""
    return sum(len(node.blocks) for node in state.nodes.values() if node.lock == 0)


def _status(bridge: Bridge) -> Literal["ok", "stuck", "draining", "failed"]:
    if bridge.failure:
        return "failed"
    if bridge.draining:
        return "draining"
    return "stuck" if bridge.stuck else "ok"


def may_control(request: Request, key: str | None) -> bool:
    """Without a key, only this machine may hold the engine."""
    return key is not None or is_loopback(request.client.host if request.client else "")


def _only_here(request: Request, settings: ServerSettings) -> None:
    """Refuse whoever may not hold the engine, and pages of other sites."""
    if refused := cross_site(request.scope, settings.cors_origins):
        raise refused
    if not may_control(request, settings.api_key):
        raise ApiError(
            403,
            "without a key the engine can be held from this machine only: start the server with "
            "--api-key to do it from others",
            type="permission_error",
            code="loopback_only",
        )
