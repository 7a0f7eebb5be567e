"""Restart an engine with other settings: the same model, a new run.

The weights stay in memory. The old run's requests end with an error, its log is kept for a comparison,
and its KV memory is freed before the new one is allocated, so the two never exist at the same time.
"""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.cache.eviction import eviction_named
from engine.config import ConfigError, EngineConfig
from engine.engine import Engine
from engine.events.vocabulary import Event
from engine.scheduling.policies import policy_named
from server.core.bridge import Bridge
from server.core.event_log import Outbox, PreviousRun, encode_event
from server.core.replay import Prompts, Replay, check_inputs, inputs_of
from server.http.errors import ApiError, bad_request, unavailable

# A pool has an object per block, and a block at least one token slot.
MAX_KV_TOKENS = 1 << 20
# As in visualizer/html.py: higher levels take three times as long for 6 %.
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
        changed = msgspec.structs.replace(config, **changes)
        policy_named(changed.policy)
        eviction_named(changed.eviction)
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
    return bad_request(f"settings.{field}", str(error))


async def restarted(
    old: Bridge, restart: Restart, open_record: Callable[[], Callable[[list[Event]], None] | None]
) -> tuple[Bridge, ApiError | None]:
    """Return the bridge of a new engine with the model of `old`, started. Lives on the event loop.

    `open_record` opens the new run's trace file; it may raise ApiError. If the new KV memory cannot be
    allocated, the new engine has the old settings, and the error is returned with it.

    Raises ApiError before anything has changed if the settings or the prompts cannot be used, or if
    requests are unfinished and `restart.abort` is off.
    """
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
    check_inputs(
        inputs,
        config,
        vocab_size=old.tokenizer.vocab_size,
        max_context=old.max_context,
        settings=old.settings,
    )
    record = open_record()
    engine = await old.retire()
    if engine is None:
        raise unavailable(
            "a step did not end in time: restart the engine again later", "engine_stuck"
        )
    error: ApiError | None = None
    try:
        new_engine, outbox = await asyncio.to_thread(_engine_like, engine, config, old)
    except (ConfigError, MemoryError) as cause:
        error = _does_not_fit(config, cause)
        config, inputs = old.config, []
        new_engine, outbox = await asyncio.to_thread(_engine_like, engine, config, old)
    before, after = msgspec.to_builtins(old.config), msgspec.to_builtins(config)
    previous = PreviousRun(
        run=old.window.run,
        log=await asyncio.to_thread(_packed, old.window.trace()),
        changed={
            name: (before[name], after[name]) for name in before if before[name] != after[name]
        },
        prompts=restart.prompts if inputs else "none",
    )
    new = Bridge(new_engine, outbox, old.settings, record, replay=Replay(inputs), previous=previous)
    new.holding = old.holding
    new.start()
    old.successor = new
    old.stopped.set()
    old.window.wake()
    return new, error


def _engine_like(old: Engine, config: EngineConfig, bridge: Bridge) -> tuple[Engine, Outbox]:
    """Return an engine with the model of `old`, whose KV memory is freed."""
    outbox = Outbox(texts=bridge.settings.trace_text == "on")
    engine = Engine(old.runner, config, tokenizer=old.tokenizer, log=outbox)
    if bridge.paused:
        engine.pause()
    return engine, outbox


def _does_not_fit(config: EngineConfig, cause: Exception) -> ApiError:
    """Return the error of a KV cache that does not fit into memory."""
    reason = f"max_kv_tokens {config.max_kv_tokens} does not fit into memory"
    if isinstance(cause, ConfigError):
        reason = str(cause)
    return _wrong_setting(ConfigError(f"{reason}. The engine was restarted with its old settings"))


def _packed(events: list[Event]) -> bytes:
    lines = b"".join(encode_event(event) + b"\n" for event in events)
    return gzip.compress(lines, _GZIP_LEVEL, mtime=0)
