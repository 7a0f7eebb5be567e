"""Routes for operators (/health, /ready) and for teachers (/engine/...).

A teacher pauses and resumes the engine, runs it step by step or until something happens, and holds
submissions back to release them together.
"""

from typing import Literal, Self

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.events.fold import State
from server.core.bridge import Bridge
from server.core.models import Models, ViewedModel
from server.core.run_until import MAX_STEPS, StopReason, Until
from server.core.settings import ServerSettings
from server.http.access import cross_site, is_loopback
from server.http.errors import ApiError, bad_request, unavailable


class StepRequest(BaseModel):
    """A body for /engine/step."""

    model_config = ConfigDict(strict=True, extra="forbid")

    steps: int = Field(1, ge=1, le=100_000, description="Steps to run.")


class RunUntilRequest(BaseModel):
    """A body for /engine/run_until."""

    model_config = ConfigDict(strict=True, extra="forbid")

    until: Until = Field(
        description=(
            "What to stop after: the next preemption, eviction, end (`finish`) or `arrival` of a "
            "request; a request that is left `waiting`; the `first_token` of `request`; or `steps`."
        )
    )
    request: int | None = Field(
        None, ge=1, description="With `first_token`: the request's id in the event log."
    )
    steps: int = Field(MAX_STEPS, ge=1, le=MAX_STEPS, description="Maximum number of steps.")

    @model_validator(mode="after")
    def _check_request(self) -> Self:
        if self.until == "first_token" and self.request is None:
            raise bad_request("request", "request is missing: name the request to wait for")
        if self.until != "first_token" and self.request is not None:
            raise bad_request(
                "request", f"request cannot be used with until={self.until!r}: omit it"
            )
        return self


class Blocks(BaseModel):
    """Counts of KV blocks.

    `cached` blocks are in the prefix cache only and can be evicted. Blocks that are neither free nor
    cached are used by requests, or held for LMTP's buffers.
    """

    total: int
    free: int
    cached: int


class Health(BaseModel):
    """The engine's state after its last step.

    "stuck" means that its current step is taking too long, "failed" that it has stopped for good.
    """

    status: Literal["ok", "stuck", "draining", "failed"]
    step: int = Field(description="Number of the last step.")
    waiting: int = Field(description="Requests in the queue.")
    prefilling: int = Field(description="Running requests whose prompt is not computed yet.")
    active: int = Field(description="Running requests that generate tokens.")
    pending_submit: int = Field(description="Submitted requests that are not in the queue yet.")
    paused: bool = Field(description="Whether the engine is paused.")
    blocks: Blocks


class Ready(BaseModel):
    """The server accepts requests."""

    status: Literal["ready"]


class EngineState(BaseModel):
    """Whether the engine is paused, and the number of its last step."""

    step: int
    paused: bool


class StoppedEngine(EngineState):
    """Why the engine stopped."""

    reason: StopReason = Field(
        description=(
            "What was waited for; or `steps`: the maximum has run; `idle`: no work is left; `finish`: "
            "the named request ended without a token; `paused` or `resumed` by another command."
        )
    )
    request: int | None = Field(description="The id of the request that it happened to.")
    message: str = Field(description="The reason in words.")


class Submissions(BaseModel):
    """Whether new requests are held back, and how many are or have just been released."""

    holding: bool
    requests: int


def routes(models: Models) -> APIRouter:
    """Return the routes /health, /ready and /engine/... for the loaded models."""
    router = APIRouter()
    settings = models.settings

    @router.get("/health", tags=["Operation"])
    async def health(model: ViewedModel = None) -> Health:
        """Return the engine's state after its last step."""
        return _health(models.viewed(model))

    @router.get("/ready", tags=["Operation"])
    async def ready(model: ViewedModel = None) -> Ready:
        """Return 200 if the server accepts requests; 503 while it drains, is stuck or has failed."""
        if not_ready := models.viewed(model).not_ready:
            raise unavailable(not_ready, "not_ready")
        return Ready(status="ready")

    @router.post("/engine/pause", tags=["Teacher's controls"])
    async def pause(request: Request, model: ViewedModel = None) -> EngineState:
        """Pause the engine: it still queues requests, but runs no step."""
        _check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return EngineState(step=await bridge.pause(), paused=True)

    @router.post("/engine/resume", tags=["Teacher's controls"])
    async def resume(request: Request, model: ViewedModel = None) -> EngineState:
        """Resume the engine."""
        _check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return EngineState(step=await bridge.resume(), paused=False)

    @router.post("/engine/step", tags=["Teacher's controls"])
    async def step(
        request: Request, body: StepRequest | None = None, model: ViewedModel = None
    ) -> EngineState:
        """Run steps of a paused engine, then return the number of the last one."""
        _check_allowed(request, settings)
        steps = body.steps if body else 1
        with models.commanded(model) as bridge:
            return EngineState(step=await bridge.step(steps), paused=True)

    @router.post("/engine/run_until", tags=["Teacher's controls"])
    async def run_until(
        request: Request, body: RunUntilRequest, model: ViewedModel = None
    ) -> StoppedEngine:
        """Pause the engine, run it until something happens, and return what stopped it.

        The engine stops after the step in which it happened. /engine/pause stops it earlier.
        """
        _check_allowed(request, settings)
        with models.commanded(model) as bridge:
            stopped = await bridge.run_until(body.until, body.request, body.steps)
        return StoppedEngine(
            step=stopped.step,
            paused=stopped.reason != "resumed",
            reason=stopped.reason,
            request=stopped.request,
            message=stopped.message,
        )

    @router.post("/engine/hold_submissions", tags=["Teacher's controls"])
    async def hold_submissions(request: Request, model: ViewedModel = None) -> Submissions:
        """Hold new requests back: they do not arrive in the engine until they are released."""
        _check_allowed(request, settings)
        with models.commanded(model) as bridge:
            bridge.hold_submissions()
            return Submissions(holding=True, requests=len(bridge.held))

    @router.post("/engine/release_submissions", tags=["Teacher's controls"])
    async def release_submissions(request: Request, model: ViewedModel = None) -> Submissions:
        """Release all held requests into the same step, and hold no more back."""
        _check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return Submissions(holding=False, requests=await bridge.release_submissions())

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
    """Return the number of blocks in the prefix tree that no request or hold locks."""
    return sum(len(node.blocks) for node in state.nodes.values() if node.lock == 0)


def _status(bridge: Bridge) -> Literal["ok", "stuck", "draining", "failed"]:
    if bridge.failure:
        return "failed"
    if bridge.draining:
        return "draining"
    return "stuck" if bridge.stuck else "ok"


def may_control(request: Request, key: str | None) -> bool:
    """Whether a client may pause the engine. Without a key, only clients on this machine may."""
    return key is not None or is_loopback(request.client.host if request.client else "")


def _check_allowed(request: Request, settings: ServerSettings) -> None:
    """Raise ApiError for pages from other sites, and for clients that may not pause the engine."""
    if error := cross_site(request.scope, settings.cors_origins):
        raise error
    if not may_control(request, settings.api_key):
        raise ApiError(
            403,
            "without a key, the engine can only be paused from this machine: start the server with "
            "--api-key to pause it from other machines",
            type="permission_error",
            code="loopback_only",
        )
