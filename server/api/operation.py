"""Routes for operators (/health, /ready) and for teachers (/engine/...).

A teacher can pause and resume the engine, run it step by step or until something happens, hold new
requests back to release them together, and restart the engine with other settings.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, Self

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from engine.core.config import EngineConfig
from engine.core.log.fold import State
from server.core.bridge import Bridge
from server.core.models import Models, ViewedModel
from server.core.replay import Prompts
from server.core.restart import Restart
from server.core.run_until import MAX_STEPS, StopReason, Until
from server.http.access import check_allowed
from server.http.errors import bad_request, unavailable
from server.http.fields import Strict


class StepRequest(Strict):
    """A body for /engine/step."""

    steps: int = Field(1, ge=1, le=100_000, description="Steps to run.")


class RunUntilRequest(Strict):
    """A body for /engine/run_until."""

    until: Until = Field(
        description=(
            "The event to stop after: the next `preemption`, `eviction`, end of a request "
            "(`finish`) or `arrival`; a request that is left `waiting`; the `first_token` of "
            "`request`; or `steps`, which stops after the number of steps."
        )
    )
    request: int | None = Field(
        None, ge=1, description="The request's id in the event log; only with `first_token`."
    )
    steps: int = Field(MAX_STEPS, ge=1, le=MAX_STEPS, description="Maximum number of steps.")

    @model_validator(mode="after")
    def _check_request(self) -> Self:
        if self.until == "first_token" and self.request is None:
            raise bad_request(
                "request", "request is missing: until='first_token' needs the id of a request"
            )
        if self.until != "first_token" and self.request is not None:
            raise bad_request(
                "request", f"request cannot be used with until={self.until!r}: omit it"
            )
        return self


_SETTINGS = msgspec.json.schema_components((EngineConfig,))[1]["EngineConfig"]


class RestartRequest(Strict):
    """A body for /engine/restart."""

    settings: Annotated[dict[str, Any], WithJsonSchema(_SETTINGS)] = Field(
        {}, description="The settings to change; omitted settings stay as they are."
    )
    prompts: Prompts = Field(
        "none",
        description=(
            "Whether to submit the old run's prompts again: each before the same step as in the "
            "old run (`same_steps`), or all of them before the first step (`together`). No client "
            "waits for these requests."
        ),
    )
    abort: bool = Field(
        False,
        description="Abort unfinished requests; if false, they make the restart fail with 409.",
    )


class RestartedEngine(BaseModel):
    """The new run and the changed settings."""

    run: str = Field(description="The new run's name, as in the ids of /events.")
    previous: str = Field(description="The old run's name. /trace?previous=true returns its log.")
    paused: bool = Field(description="Whether the engine is paused; a restart does not change it.")
    changed: dict[str, tuple[Any, Any]] = Field(
        description="The old and the new value of each changed setting."
    )


class Blocks(BaseModel):
    """Counts of KV blocks.

    `cached` counts the blocks that only the prefix cache holds, which can be evicted. Blocks that are
    neither free nor cached are used by requests or held for LMTP's buffers.
    """

    total: int
    free: int
    cached: int


class EngineCounts(BaseModel):
    """An engine after a step."""

    step: int = Field(description="Number of the last step.")
    waiting: int = Field(description="Requests in the queue.")
    prefilling: int = Field(description="Running requests whose prompt is not fully computed.")
    active: int = Field(description="Running requests that generate tokens.")
    paused: bool = Field(description="Whether the engine is paused.")
    blocks: Blocks


class Health(EngineCounts):
    """The engine's state after its last step.

    "stuck" means that the current step is taking too long. "failed" means that the engine has stopped,
    either for good or until its process has been started again; only then is the HTTP status 503, as
    in vLLM.
    """

    status: Literal["ok", "stuck", "draining", "failed"]
    pending_submit: int = Field(description="Submitted requests that are not in the queue yet.")
    failure: str = Field(description="Why the engine has stopped; empty if it has not.")
    trace_error: str = Field(
        description="Why `--trace-file` is no longer written; empty if it is, or if there is none."
    )


class Ready(BaseModel):
    """The server accepts requests."""

    status: Literal["ready"]
    trace_error: str = Field(
        description="Why `--trace-file` is no longer written; empty if it is, or if there is none."
    )


class EngineState(BaseModel):
    """Whether the engine is paused, and the number of its last step."""

    step: int
    paused: bool


class StoppedEngine(EngineState):
    """Why the engine stopped."""

    reason: StopReason = Field(
        description=(
            "The event of `until`, or another reason. `steps`: the maximum number of steps has run; "
            "`idle`: no work is left; `finish`: the named request ended without a token; `paused` or "
            "`resumed`: another command intervened."
        )
    )
    request: int | None = Field(description="The id of the request that caused the stop, if any.")
    message: str = Field(description="The reason in words.")


class Screen(Strict):
    """The step that the projector's screen shows."""

    step: int | None = Field(
        ge=0,
        description="The earlier step that the screen shows; null if the screen follows the engine.",
    )


class Submissions(BaseModel):
    """Whether new requests are held back, and how many are held or have just been released."""

    holding: bool
    requests: int


def routes(models: Models) -> APIRouter:
    """Return the routes /health, /ready and /engine/... for the loaded models."""
    router = APIRouter()
    settings = models.settings

    @router.get("/health", tags=["Operation"], responses={503: {"model": Health}})
    async def health(response: Response, model: ViewedModel = None) -> Health:
        """Return the engine's state after its last step, with status 503 if the engine has failed."""
        health = _health(models.viewed(model))
        if health.status == "failed":
            response.status_code = 503
        return health

    @router.get("/ready", tags=["Operation"])
    async def ready(model: ViewedModel = None) -> Ready:
        """Return 200 if the server accepts requests; 503 while it drains, is stuck or has failed."""
        bridge = models.viewed(model)
        if not_ready := bridge.not_ready:
            raise unavailable(not_ready, "not_ready")
        return Ready(status="ready", trace_error=bridge.trace_error)

    async def commanded(request: Request, model: ViewedModel = None) -> AsyncIterator[Bridge]:
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            yield bridge

    controls = APIRouter(prefix="/engine", tags=["Teacher's controls"])
    Commanded = Annotated[Bridge, Depends(commanded)]

    @controls.post("/pause")
    async def pause(bridge: Commanded) -> EngineState:
        """Pause the engine. A paused engine still queues requests, but runs no step."""
        return EngineState(step=await bridge.classroom.pause(), paused=True)

    @controls.post("/resume")
    async def resume(bridge: Commanded) -> EngineState:
        """Resume the engine."""
        return EngineState(step=await bridge.classroom.resume(), paused=False)

    @controls.post("/step")
    async def step(bridge: Commanded, body: StepRequest | None = None) -> EngineState:
        """Run steps of a paused engine, then return the number of the last one."""
        steps = body.steps if body else 1
        return EngineState(step=await bridge.classroom.step(steps), paused=True)

    @controls.post("/run_until")
    async def run_until(bridge: Commanded, body: RunUntilRequest) -> StoppedEngine:
        """Pause the engine, run it until something happens, and return what stopped it.

        The engine stops after the step in which the event happened. /engine/pause stops it earlier.
        """
        stopped = await bridge.classroom.run_until(body.until, body.request, body.steps)
        return StoppedEngine(
            step=stopped.step,
            paused=stopped.reason != "resumed",
            reason=stopped.reason,
            request=stopped.request,
            message=stopped.message,
        )

    @controls.post("/restart")
    async def restart(
        request: Request, body: RestartRequest, model: ViewedModel = None
    ) -> RestartedEngine:
        """Restart the engine with other settings: the same model, a new run, an empty KV cache.

        The restart is rejected while requests are unfinished, unless `abort` is true. The old run's
        log is kept until the next restart, and /compare compares it with the new log.
        """
        check_allowed(request, settings)
        changes = {name: value for name, value in body.settings.items() if value is not None}
        bridge = await models.restart(model, Restart(changes, body.prompts, body.abort))
        assert bridge.previous is not None
        return RestartedEngine(
            run=bridge.window.run,
            previous=bridge.previous.run,
            paused=bridge.paused,
            changed=bridge.previous.changed,
        )

    @controls.post("/hold_submissions")
    async def hold_submissions(bridge: Commanded) -> Submissions:
        """Hold new requests back, so that they do not reach the engine until they are released."""
        bridge.classroom.hold()
        return Submissions(holding=True, requests=len(bridge.classroom.held))

    @controls.post("/release_submissions")
    async def release_submissions(bridge: Commanded) -> Submissions:
        """Release all held requests into the same step and stop holding new requests back."""
        return Submissions(holding=False, requests=await bridge.classroom.release())

    @controls.post("/screen")
    async def screen(bridge: Commanded, body: Screen) -> Screen:
        """Tell the class's phones which earlier step the projector's screen shows."""
        bridge.classroom.show_on_screen(body.step)
        return body

    router.include_router(controls)
    return router


def _health(bridge: Bridge) -> Health:
    status: Literal["ok", "stuck", "draining", "failed"] = "stuck" if bridge.stuck else "ok"
    if bridge.failure or bridge.draining:
        status = "failed" if bridge.failure else "draining"
    return Health(
        status=status,
        pending_submit=bridge.pending_submit,
        failure=bridge.failure,
        trace_error=bridge.trace_error,
        **engine_counts(bridge.window.state) | {"paused": bridge.paused},
    )


def engine_counts(state: State) -> dict[str, Any]:
    """Return the fields of EngineCounts."""
    running = [state.requests[id_] for id_ in state.running]
    prefilling = sum(request.num_computed_tokens < request.prompt_length for request in running)
    return {
        "step": state.step,
        "waiting": len(state.waiting),
        "prefilling": prefilling,
        "active": len(running) - prefilling,
        "paused": state.paused,
        "blocks": Blocks(total=len(state.refs), free=len(state.free), cached=only_cached(state)),
    }


def only_cached(state: State) -> int:
    """Return the number of blocks in the prefix tree that no request or hold locks."""
    return sum(len(node.blocks) for node in state.nodes.values() if node.lock_ref == 0)
