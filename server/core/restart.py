"""Restart an engine with other settings: the same model, a new run.

The weights stay in memory. The old run's requests end with an error, its log is kept for a comparison,
and its KV memory is freed before the new one is allocated, so the two never exist at the same time.
"""

import asyncio
import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Event
from engine.core.scheduling.admission import RequestError, RequestValidator
from engine.simulation.workload import Abort, Arrival, Workload
from server.core.bridge import Bridge
from server.core.engine_client import EngineClient, EngineDiedError, Inputs
from server.core.event_log import PreviousRun, json_lines
from server.core.replay import Prompts
from server.http.errors import ApiError, bad_request, in_json, unavailable

# A pool has an object per block, and a block at least one token slot.
MAX_KV_TOKENS = 1 << 20
# As in visualizer/packed.py: higher levels take three times as long for 6 %.
_GZIP_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Restart:
    """What the teacher asks for.

    settings  the settings to change, by the name of their field in `EngineConfig`
    prompts   which of the old run's prompts to submit again, and when
    abort     end unfinished requests; otherwise they are a reason not to restart
    """

    settings: Mapping[str, Any]
    prompts: Prompts
    abort: bool


def changed_config(config: EngineConfig, changes: Mapping[str, Any]) -> EngineConfig:
    """Return the settings after the changes. Raises ApiError, which names the setting."""
    try:
        changed = config.changed(**changes)
    except ConfigError as error:
        raise _wrong_setting(error) from error
    if changed.max_kv_tokens > max(MAX_KV_TOKENS, config.max_kv_tokens):
        raise bad_request(
            "settings.max_kv_tokens",
            f"max_kv_tokens must be at most {MAX_KV_TOKENS}, got {changed.max_kv_tokens}",
        )
    return changed


def _wrong_setting(error: ConfigError) -> ApiError:
    field = str(error).split(maxsplit=1)[0]
    return bad_request(f"settings.{field}", in_json(str(error)))


async def restarted(old: Bridge, restart: Restart) -> tuple[Bridge, ApiError | None]:
    """Return the bridge of a new engine with the model of `old`, started. Lives on the event loop.

    If the new KV memory cannot be allocated, the new engine has the old settings, and the error is
    returned with it.

    Raises ApiError before anything has changed if the settings or the prompts cannot be used, if the
    next trace file cannot be written, or if requests are unfinished and `restart.abort` is off.
    """
    if old.died:  # an engine that has failed otherwise can be restarted
        raise old.failed()
    if old.unfinished and not restart.abort:
        raise ApiError(
            409,
            f"{old.unfinished} requests are unfinished: wait until they end, or send abort=true to end "
            "them",
            code="requests_unfinished",
        )
    if old.stuck:
        raise unavailable(f"{old.stuck}: it can be restarted when the step ends", "engine_stuck")
    config = changed_config(old.config, restart.settings)
    inputs = await asyncio.to_thread(inputs_of, old.window.trace(), restart.prompts)
    _check_inputs(inputs, config, old)
    if old.adapters and not config.max_loras:
        raise _wrong_setting(
            ConfigError(
                "max_loras must be at least 1 while adapters are loaded, got 0: unload them"
            )
        )
    if reason := await old.client.open_next_log():
        raise ApiError(
            409,
            f"the new run's trace file cannot be written: {reason}; see --trace-file",
            code="trace_file",
        )
    if not await old.retire():
        raise unavailable(
            "a step did not end in time: restart the engine again later", "engine_stuck"
        )
    error: ApiError | None = None
    try:
        try:
            await old.client.restart(config, paused=old.paused, inputs=inputs)
        except (ConfigError, MemoryError) as cause:
            error = _does_not_fit(config, cause)
            inputs = []
            await old.client.restart(old.config, paused=old.paused, inputs=inputs)
    except EngineDiedError as cause:
        raise unavailable(
            f"{cause}: it is started again, with its old settings", "engine_died"
        ) from cause
    return await succeed(old, old.client, restart.prompts if inputs else "none"), error


async def succeed(old: Bridge, client: EngineClient, prompts: Prompts = "none") -> Bridge:
    """Return the started bridge of a new run; viewers of the old run continue with it."""
    before, after = msgspec.to_builtins(old.config), msgspec.to_builtins(client.config)
    previous = PreviousRun(
        run=old.window.run,
        log=await asyncio.to_thread(_packed, old.window.trace()),
        changed={
            name: (before[name], after[name]) for name in before if before[name] != after[name]
        },
        prompts=prompts,
    )
    new = Bridge(client, old.settings, previous=previous)
    if old.classroom.holding:
        new.classroom.hold()
    new.start()
    old.successor = new
    old.window.wake()
    return new


def _does_not_fit(config: EngineConfig, cause: Exception) -> ApiError:
    """Return the error of a KV cache that does not fit into memory."""
    reason = f"max_kv_tokens {config.max_kv_tokens} does not fit into memory"
    if isinstance(cause, ConfigError):
        reason = str(cause)
    return _wrong_setting(ConfigError(f"{reason}. The engine was restarted with its old settings"))


def _packed(events: list[Event]) -> bytes:
    return gzip.compress(json_lines(events), _GZIP_LEVEL, mtime=0)


def inputs_of(events: Iterable[Event], prompts: Prompts) -> Inputs:
    """Return the arrivals and aborts of a log, in order.

    With "together", all requests arrive before the first step, and none is aborted. Raises ApiError for
    a log without its beginning or without texts.
    """
    if prompts == "none":
        return []
    log = EventLog()
    for event in events:
        log.append(event)
    try:
        inputs = Workload.from_log(log).inputs
    except ValueError as error:
        message = f"prompts must be none, got {prompts!r}: {error} (the log: see --log-window)"
        raise bad_request("prompts", message) from error
    arrivals_and_aborts = [one for one in inputs if isinstance(one, Arrival | Abort)]
    if prompts == "same_steps":
        return arrivals_and_aborts
    arrivals = [one for one in arrivals_and_aborts if isinstance(one, Arrival)]
    for one in arrivals:
        one.step = 1
    return arrivals


def _check_inputs(inputs: Inputs, config: EngineConfig, old: Bridge) -> None:
    """Raise ApiError if an engine with these settings could never serve one of the requests."""
    request, validator = 1, RequestValidator(config, old.tokenizer)
    keys = {one.key for one in old.adapters.values()}
    for one in inputs:
        if not isinstance(one, Arrival):
            continue
        if (adapter := (one.extra_key or ("",))[0]) and adapter not in keys:
            raise bad_request(
                "prompts",
                f"prompts must be none, because a request used the adapter {adapter}, which is no "
                "longer loaded",
            )
        try:
            validator.validate(one.prompt, one.params, one.priority, max_context=old.max_context)
        except RequestError as error:
            name = one.label if one.label and old.settings.trace_text == "on" else f"r{request}"
            raise bad_request(
                "prompts",
                f"prompts must be none with these settings, because {name} cannot be served: {error}",
            ) from error
        request += one.params.samples
