"""Routes for operators (/health, /ready) and for teachers (/engine/...).

A teacher pauses and resumes the engine, runs it step by step or until something happens, holds
submissions back to release them together, and restarts the engine with other settings.
"""

import secrets
from typing import Any, Literal, Self

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.events.fold import State
from server.core.bridge import Bridge
from server.core.models import Models, ViewedModel
from server.core.replay import Prompts
from server.core.restart import Restart
from server.core.run_until import MAX_STEPS, StopReason, Until
from server.core.settings import ServerSettings
from server.http.access import CLUSTER_KEY_HEADER, cross_site, is_loopback
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


class SettingChanges(BaseModel):
    """Settings of the engine to change; the others stay. They are the options of `underglass serve`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    token_budget: int | None = Field(
        default=None, description="Maximum number of tokens computed in one step."
    )
    max_batch_size: int | None = Field(
        default=None, description="Maximum number of running requests."
    )
    max_kv_tokens: int | None = Field(
        default=None, description="Size of the KV cache, in token slots."
    )
    block_size: int | None = Field(default=None, description="Token slots per KV block.")
    policy: str | None = Field(
        default=None, description="`fcfs`, `priority`, `sjf`, `lpm` or `fair`."
    )
    batching: str | None = Field(default=None, description="`continuous` or `static`.")
    chunked_prefill: bool | None = Field(
        default=None, description="Split long prompts into chunks."
    )
    admission: str | None = Field(default=None, description="`whole` or `first_chunk`.")
    prefix_cache: str | None = Field(default=None, description="`radix`, `hash` or `off`.")
    eviction: str | None = Field(default=None, description="`lru` or `lfu`.")
    preemption: bool | None = Field(
        default=None, description="Preempt requests when memory runs out."
    )
    async_scheduling: bool | None = Field(
        default=None, description="Schedule a step while the one before is computed."
    )
    jump_forward: bool | None = Field(
        default=None, description="Append the tokens that a grammar forces without sampling them."
    )


class RestartRequest(BaseModel):
    """A body for /engine/restart."""

    model_config = ConfigDict(strict=True, extra="forbid")

    settings: SettingChanges = SettingChanges()
    prompts: Prompts = Field(
        "none",
        description=(
            "Submit the old run's prompts again: before the `same_steps` as then, or all `together` "
            "before the first step. No client waits for these requests."
        ),
    )
    abort: bool = Field(False, description="End unfinished requests instead of refusing.")


class RestartedEngine(BaseModel):
    """The new run, and what was changed."""

    run: str = Field(description="The new run's name, as in the ids of /events.")
    previous: str = Field(description="The old run's name. /trace?previous=true returns its log.")
    paused: bool = Field(description="A paused engine stays paused.")
    changed: dict[str, tuple[Any, Any]] = Field(
        description="Each setting's value before and after."
    )


class Blocks(BaseModel):
    """Counts of KV blocks.

    `cached` blocks are in the prefix cache only and can be evicted. Blocks that are neither free nor
    cached are used by requests, or held for LMTP's buffers.
    """

    total: int
    free: int
    cached: int


class EngineCounts(BaseModel):
    """An engine after a step."""

    step: int = Field(description="Number of the last step.")
    waiting: int = Field(description="Requests in the queue.")
    prefilling: int = Field(description="Running requests whose prompt is not computed yet.")
    active: int = Field(description="Running requests that generate tokens.")
    paused: bool = Field(description="Whether the engine is paused.")
    blocks: Blocks


class Health(EngineCounts):
    """The engine's state after its last step.

    "stuck" means that its current step is taking too long, "failed" that it has stopped: for good, or
    until its process has been started again. The HTTP status is then 503, as in vLLM.
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
            "What was waited for; or `steps`: the maximum has run; `idle`: no work is left; `finish`: "
            "the named request ended without a token; `paused` or `resumed` by another command."
        )
    )
    request: int | None = Field(description="The id of the request that it happened to.")
    message: str = Field(description="The reason in words.")


class Screen(BaseModel):
    """What the projector's screen shows."""

    model_config = ConfigDict(strict=True, extra="forbid")

    step: int | None = Field(
        ge=0, description="The earlier step that it looks back at; null if it follows the engine."
    )


class Submissions(BaseModel):
    """Whether new requests are held back, and how many are or have just been released."""

    holding: bool
    requests: int


def routes(models: Models) -> APIRouter:
    """Return the routes /health, /ready and /engine/... for the loaded models."""
    router = APIRouter()
    settings = models.settings

    @router.get("/health", tags=["Operation"], responses={503: {"model": Health}})
    async def health(response: Response, model: ViewedModel = None) -> Health:
        """Return the engine's state after its last step, with status 503 if the engine has failed."""
        told = _health(models.viewed(model))
        if told.status == "failed":
            response.status_code = 503
        return told

    @router.get("/ready", tags=["Operation"])
    async def ready(model: ViewedModel = None) -> Ready:
        """Return 200 if the server accepts requests; 503 while it drains, is stuck or has failed."""
        bridge = models.viewed(model)
        if not_ready := bridge.not_ready:
            raise unavailable(not_ready, "not_ready")
        return Ready(status="ready", trace_error=bridge.trace_error)

    @router.post("/engine/pause", tags=["Teacher's controls"])
    async def pause(request: Request, model: ViewedModel = None) -> EngineState:
        """Pause the engine: it still queues requests, but runs no step."""
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return EngineState(step=await bridge.pause(), paused=True)

    @router.post("/engine/resume", tags=["Teacher's controls"])
    async def resume(request: Request, model: ViewedModel = None) -> EngineState:
        """Resume the engine."""
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return EngineState(step=await bridge.resume(), paused=False)

    @router.post("/engine/step", tags=["Teacher's controls"])
    async def step(
        request: Request, body: StepRequest | None = None, model: ViewedModel = None
    ) -> EngineState:
        """Run steps of a paused engine, then return the number of the last one."""
        check_allowed(request, settings)
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
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            stopped = await bridge.run_until(body.until, body.request, body.steps)
        return StoppedEngine(
            step=stopped.step,
            paused=stopped.reason != "resumed",
            reason=stopped.reason,
            request=stopped.request,
            message=stopped.message,
        )

    @router.post("/engine/restart", tags=["Teacher's controls"])
    async def restart(
        request: Request, body: RestartRequest, model: ViewedModel = None
    ) -> RestartedEngine:
        """Restart the engine with other settings: the same model, a new run, an empty KV cache.

        Unfinished requests are a reason to refuse, unless `abort` is true. The old run's log is kept
        until the next restart, and /compare compares it with the new one.
        """
        check_allowed(request, settings)
        changes = body.settings.model_dump(exclude_none=True)
        bridge = await models.restart(model, Restart(changes, body.prompts, body.abort))
        assert bridge.previous is not None
        return RestartedEngine(
            run=bridge.window.run,
            previous=bridge.previous.run,
            paused=bridge.paused,
            changed=bridge.previous.changed,
        )

    @router.post("/engine/hold_submissions", tags=["Teacher's controls"])
    async def hold_submissions(request: Request, model: ViewedModel = None) -> Submissions:
        """Hold new requests back: they do not arrive in the engine until they are released."""
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            bridge.hold_submissions()
            return Submissions(holding=True, requests=len(bridge.held))

    @router.post("/engine/release_submissions", tags=["Teacher's controls"])
    async def release_submissions(request: Request, model: ViewedModel = None) -> Submissions:
        """Release all held requests into the same step, and hold no more back."""
        check_allowed(request, settings)
        with models.commanded(model) as bridge:
            return Submissions(holding=False, requests=await bridge.release_submissions())

    @router.post("/engine/screen", tags=["Teacher's controls"])
    async def screen(request: Request, body: Screen, model: ViewedModel = None) -> Screen:
        """Tell the class's phones which earlier step the projector's screen looks back at."""
        check_allowed(request, settings)
        models.viewed(model).show_on_screen(body.step)
        return body

    return router


def _health(bridge: Bridge) -> Health:
    counts = engine_counts(bridge.window.state) | {"paused": bridge.paused}
    return Health(
        status=_status(bridge),
        pending_submit=bridge.pending_submit,
        failure=bridge.failure,
        trace_error=bridge.trace_error,
        **counts,
    )


def engine_counts(state: State) -> dict[str, Any]:
    """Return the fields of EngineCounts."""
    running = [state.requests[id_] for id_ in state.running]
    prefilling = sum(request.computed < request.prompt_length for request in running)
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
    return sum(len(node.blocks) for node in state.nodes.values() if node.lock == 0)


def _status(bridge: Bridge) -> Literal["ok", "stuck", "draining", "failed"]:
    if bridge.failure:
        return "failed"
    if bridge.draining:
        return "draining"
    return "stuck" if bridge.stuck else "ok"


def may_control(request: Request, settings: ServerSettings) -> bool:
    """Whether a client may pause the engine. Without a key, only clients on this machine may.

    A replica with a cluster key is controlled by its gateway only, which checks the client.
    """
    if settings.cluster_key is not None:
        sent = request.headers.get(CLUSTER_KEY_HEADER, "")
        return secrets.compare_digest(sent.encode(), settings.cluster_key.encode())
    host = request.client.host if request.client else ""
    return settings.api_key is not None or is_loopback(host)


def check_allowed(request: Request, settings: ServerSettings) -> None:
    """Raise ApiError for pages from other sites, and for clients that may not pause the engine."""
    if error := cross_site(request.scope, settings.cors_origins):
        raise error
    if not may_control(request, settings):
        if settings.cluster_key is not None:
            raise ApiError(
                403,
                "this server is a replica with a cluster key: send the command to its gateway, or send "
                f"the key in the header {CLUSTER_KEY_HEADER}",
                type="permission_error",
                code="cluster_key",
            )
        raise ApiError(
            403,
            "without a key, the engine can only be paused from this machine: start the server with "
            "--api-key to pause it from other machines",
            type="permission_error",
            code="loopback_only",
        )
