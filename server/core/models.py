"""The model registry: look up the bridge for the model that a request names.

    Models(bridge)              one model, which serves requests for any name, or only for those of
                                `--served-model-name`, as in vLLM
    Models(bridge, directory)   `--model auto`: also the models in a directory, loaded on request

Every loaded model has its own engine, bridge and engine thread, and, unless the server has one process,
a process of its own: models do not share a GIL, unloading one returns all of its memory, and a crash
ends only one of them, which its next request loads again.

A request leases its model from the lookup until the request ends. When the limit on loaded models is
reached, the least recently requested model without a lease is evicted (Ollama does the same,
`server/sched.go`). A request that names no model uses the first one, which is always loaded and does
not count towards the limit.

A name is looked up among the directory's entries and is never used as a path: no name can lead out of
the directory, and nothing is downloaded.

Models are loaded on a separate thread while streams continue, with one exception: `tokenizers` and
`llguidance` hold the GIL while they read a vocabulary, which the API process does even where the model
is in another one. For 150,000 tokens, that stops all streams twice, for about half a second each.
"""

import asyncio
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Query

from server.core.adapters import may_be_updated
from server.core.bridge import Bridge
from server.core.engine_client import EngineClient
from server.core.restart import Restart, restarted, succeed
from server.http.errors import ApiError, no_model, too_many, unavailable

logger = logging.getLogger("underglass")

# An engine process that ends again within this time is not started a third time.
SECONDS_BETWEEN_DEATHS = 60.0

ViewedModel = Annotated[
    str | None,
    Query(description="With `--model auto`: the name of a loaded model. Default: the first one."),
]


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """The directory of `--model auto`.

    path    contains one Hugging Face model directory or GGUF file per model, named after the model
    limit   how many models may be loaded at once
    load    returns the engine for a path; called on its own thread, may raise any exception
    """

    path: Path
    limit: int
    load: Callable[[Path], EngineClient]

    def models(self) -> dict[str, Path]:
        """Return the models now in the directory, by name; empty if it cannot be read."""
        try:
            entries = sorted(self.path.resolve().iterdir())
        except OSError:
            return {}
        return {entry.name: entry for entry in entries if _is_model(entry)}


def _is_model(entry: Path) -> bool:
    # File names need not be UTF-8, and one that is not printable may not encode as a JSON string.
    if entry.name.startswith(".") or not entry.name.isprintable():
        return False
    return (entry / "config.json").is_file() or (entry.suffix == ".gguf" and entry.is_file())


@dataclass(slots=True, eq=False)
class _Entry:
    """A model that is loaded or loading.

    ready     its bridge, or the error if the model cannot be loaded
    leases    number of requests that wait for the bridge or use it
    """

    ready: asyncio.Future[Bridge]
    leases: int = 0
    loading: asyncio.Task[None] | None = None

    @property
    def bridge(self) -> Bridge | None:
        """The bridge, if the model is loaded."""
        return self.ready.result() if self.ready.done() else None

    @property
    def idle(self) -> bool:
        """Whether the model may be evicted now."""
        return self.bridge is not None and not self.leases

    @property
    def failed(self) -> bool:
        """Whether the model's engine has failed and no request uses it any more."""
        return self.idle and self.bridge is not None and bool(self.bridge.failure)

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Protect the model from eviction while the block runs."""
        self.leases += 1
        try:
            yield
        finally:
            self.leases -= 1

    def replace(self, bridge: Bridge) -> None:
        """Use the bridge of a restarted engine from now on."""
        self.ready = asyncio.get_running_loop().create_future()
        self.ready.set_result(bridge)

    async def unload(self) -> None:
        """End the engine thread and free the memory."""
        assert self.bridge is not None
        await self.bridge.stop()
        await self.bridge.client.unload()


class Models:
    """The registry. Lives on the event loop.

    first         serves requests that name no model
    directory     the other models, with `--model auto`
    launch        starts another process for the first model, paused or not; called on a thread. None
                  if its engine runs in this process
    gave_up       set when the server cannot go on, because its engine is lost
    lost          the reason, or ""
    """

    def __init__(
        self,
        first: Bridge,
        directory: ModelDirectory | None = None,
        launch: Callable[[bool], EngineClient] | None = None,
    ) -> None:
        self.settings = first.settings
        self.directory = directory
        self.gave_up = asyncio.Event()
        self.lost = ""
        self._launch = launch
        self._last_death = -math.inf
        self._reviving: asyncio.Task[None] | None = None
        self._waiting = 0  # requests that wait until it is done
        self._entries: dict[str, _Entry] = {}  # least recently requested first
        self._draining = False
        self._restarting = asyncio.Lock()
        self._use(first)

    def _use(self, first: Bridge) -> None:
        self.first = first
        first.on_died = self._on_died

    def names(self) -> dict[str, bool]:
        """Return every model name that requests can use, and whether the model is loaded."""
        names = [*self._own_names, *self._found(), *self._entries, *self.first.adapters]
        return {name: self.is_loaded(name) for name in names}

    @property
    def bridges(self) -> list[Bridge]:
        """The bridges of all loaded models; `first` comes first."""
        loaded = [entry.bridge for entry in self._entries.values()]
        return [self.first, *(bridge for bridge in loaded if bridge is not None)]

    @asynccontextmanager
    async def lease(self, name: str | None, *, waits: bool = True) -> AsyncIterator[Bridge]:
        """Lend the bridge of a model to a request; load the model if necessary.

        waits  whether to wait for an engine that is started again; if not, the bridge rejects requests

        The model is not evicted before the block ends. Raises ApiError if there is no such model
        (404), if it cannot be loaded, if too many requests wait for it, or if every loaded model has
        a lease.
        """
        if self._is_first(name):
            if waits:
                await self._wait_until_revived()
            if not self._is_first(name):  # an adapter that the engine no longer has
                raise no_model(name or "")
            yield self.first
            return
        assert name is not None
        entry = self._entries.pop(name, None)
        if entry is None or entry.failed:
            entry = self._start_loading(name, entry)
        self._entries[name] = entry  # at the end: it is now the most recently requested
        if entry.bridge is None:
            self._check_waiting(entry.leases, f"{name} to load")
        with entry.lease():
            # Shielded, because other requests may wait for the same load.
            yield await asyncio.shield(entry.ready)

    def _check_waiting(self, waiting: int, what: str) -> None:
        """Raise ApiError (429) if as many requests wait for something as may wait in the queue."""
        if waiting >= (limit := self.settings.max_waiting):
            raise too_many(
                f"{waiting} requests are waiting for {what}, and the limit is {limit}: "
                "try again in a second",
                "queue_full",
                1,
            )

    async def _wait_until_revived(self) -> None:
        """Wait while the first model's engine process is started again."""
        if self._reviving is None or self._reviving.done():
            return
        self._check_waiting(self._waiting, "the engine to be started again")
        self._waiting += 1
        try:
            await asyncio.shield(self._reviving)  # other requests wait for it, too
        finally:
            self._waiting -= 1

    def viewed(self, name: str | None) -> Bridge:
        """Return the bridge of a loaded model for a viewer, without loading anything.

        Otherwise an open page would reload its model each time it is evicted. The model may be evicted
        at the next `await`. Raises ApiError for a model that does not exist (404) or is not loaded
        (503).
        """
        if self._is_first(name):
            return self.first
        assert name is not None
        entry = self._entries.get(name)
        if entry is not None and entry.bridge is not None:
            return entry.bridge
        self._path_of(name)
        raise unavailable(
            f"{name} is not loaded: send a request with this model to load it", "model_not_loaded"
        )

    @contextmanager
    def commanded(self, name: str | None) -> Iterator[Bridge]:
        """Lend the bridge of a loaded model to a teacher's command, without loading anything.

        The model is not evicted before the block ends. Raises ApiError as `viewed` does.
        """
        bridge = self.viewed(name)
        entry = self._entries.get(name or "")
        with nullcontext() if entry is None else entry.lease():
            yield bridge

    async def restart(self, name: str | None, restart: Restart) -> Bridge:
        """Restart a loaded model's engine with other settings; return the new bridge.

        Raises ApiError as `viewed` and `restarted` do.
        """
        async with self._restarting:
            if self._draining:
                raise unavailable("the server is shutting down", "shutdown")
            with self.commanded(name) as old:
                new, error = await restarted(old, restart)
                if old is self.first:
                    self._use(new)
                else:
                    self._entries[name or ""].replace(new)
        if error is not None:
            raise error
        return new

    @asynccontextmanager
    async def changing_adapters(self) -> AsyncIterator[Bridge]:
        """Lend the first model's bridge to a change of its adapters; the engine is not restarted."""
        async with self._restarting:
            if self._draining:
                raise unavailable("the server is shutting down", "shutdown")
            yield self.first

    def is_loaded(self, name: str | None) -> bool:
        """Whether `lease` would return immediately."""
        entry = self._entries.get(name or "")
        return self._is_first(name) or (entry is not None and entry.bridge is not None)

    def start(self) -> None:
        """Start the first model's engine thread; called on the event loop."""
        self.first.start()

    def _on_died(self) -> None:
        """Start the first model's engine process again, once; then give up.

        vLLM and SGLang end the server when its engine dies, and rely on an orchestrator to start it
        again. A classroom has none, and one crash need not end a lesson. But an engine that dies
        repeatedly must not look like a working server, so the second time this server ends with an exit
        code.
        """
        now = asyncio.get_running_loop().time()
        again, self._last_death = now - self._last_death < SECONDS_BETWEEN_DEATHS, now
        if self._draining:
            return
        if again or self._launch is None:
            self._give_up(f"{self.first.failure}, for the second time in a minute")
        else:
            logger.error("%s. It is started again", self.first.failure)
            self._reviving = asyncio.create_task(self._revive(self._launch))

    async def _revive(self, launch: Callable[[bool], EngineClient]) -> None:
        async with self._restarting:
            dead = self.first
            try:
                await dead.retire()
                await dead.client.unload()
                client = await _in_thread(lambda: launch(dead.paused))
                new = await succeed(dead, client)
                await _load_again(new, dead)
                self._use(new)
            except Exception as error:
                self._give_up(f"{dead.failure}, and it cannot be started again: {error}")

    def _give_up(self, reason: str) -> None:
        self.lost = reason
        self.gave_up.set()

    async def drain(self) -> None:
        """Load no more models, accept no more requests, and let running requests finish."""
        self._draining = True
        for name, entry in list(self._entries.items()):
            if entry.loading is not None:
                entry.loading.cancel()
                self._fail(name, unavailable("the server is shutting down", "shutdown"))
        async with self._restarting:
            pass  # a restart that has begun comes first
        await asyncio.gather(*(bridge.drain() for bridge in self.bridges))

    async def stop(self) -> bool:
        """End every engine thread after its step; return False if one did not end."""
        return all(await asyncio.gather(*(bridge.stop() for bridge in self.bridges)))

    def close(self) -> None:
        """Close every engine's logs, and end its process."""
        for bridge in self.bridges:
            bridge.client.close()

    # Names

    @property
    def _own_names(self) -> tuple[str, ...]:
        return self.settings.served_model_name or (self.settings.model_name,)

    @cached_property
    def _any_name(self) -> bool:
        """Whether the first model answers to any name: there is no other, and never an adapter."""
        has_names = self.directory is not None or self.settings.served_model_name
        return not (has_names or self.first.adapters or may_be_updated())

    def _is_first(self, name: str | None) -> bool:
        if self._any_name or not name:
            return True
        return name in self._own_names or name in self.first.adapters

    def _found(self) -> dict[str, Path]:
        return self.directory.models() if self.directory is not None else {}

    def _path_of(self, name: str) -> Path:
        path = self._found().get(name)
        if path is None:
            raise no_model(name)
        return path

    # Loading

    def _start_loading(self, name: str, failed: _Entry | None) -> _Entry:
        """Start loading a model, and evict another one if the limit is reached."""
        path = self._path_of(name)
        if self._draining:
            raise unavailable("the server is shutting down", "shutdown")
        evicted = failed or self._make_room()
        entry = _Entry(asyncio.get_running_loop().create_future())
        entry.loading = asyncio.create_task(self._load(name, path, entry, evicted))
        return entry

    def _make_room(self) -> _Entry | None:
        """Remove and return the model to evict before loading another; None if there is room."""
        assert self.directory is not None
        if len(self._entries) < self.directory.limit:
            return None
        idle = [name for name, entry in self._entries.items() if entry.idle]
        if not idle:
            raise unavailable(
                f"all {len(self._entries)} loaded models are busy, and no more fit: try again soon",
                "models_busy",
            )
        return self._entries.pop(idle[0])

    async def _load(self, name: str, path: Path, entry: _Entry, evicted: _Entry | None) -> None:
        assert self.directory is not None
        load = self.directory.load
        try:
            if evicted is not None:
                await evicted.unload()
            client = await _in_thread(lambda: load(path))
            settings = msgspec.structs.replace(self.settings, model_name=name)
            bridge = Bridge(client, settings)
            bridge.start()
            entry.ready.set_result(bridge)
            entry.loading = None
        except Exception as error:
            reason = str(error).replace(str(path), name)
            message = f"{name} cannot be loaded: {reason}"
            self._fail(name, unavailable(message, "model_not_loadable"))

    def _fail(self, name: str, error: ApiError) -> None:
        """Fail the requests that wait for a model; the next request tries to load it again."""
        ready = self._entries.pop(name).ready
        ready.set_exception(error)
        ready.exception()  # marks it as retrieved, because all waiting requests may have ended


async def _load_again(new: Bridge, dead: Bridge) -> None:
    """Give a new process the adapters that clients had loaded, without those they had unloaded."""
    for name in new.adapters.keys() - dead.adapters.keys():
        await new.unload_adapter(name)
    for name, adapter in dead.adapters.items():
        if name not in new.adapters or new.adapters[name].path != adapter.path:
            try:
                await new.load_adapter(name, adapter.path)
            except ApiError as error:
                logger.error("the adapter %s is lost: %s", name, error)
                new.adapters.pop(name, None)


async def _in_thread(work: Callable[[], EngineClient]) -> EngineClient:
    """Run `work` on a daemon thread, which does not delay shutdown, and return its result."""
    result: Future[EngineClient] = Future()

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, name="loader", daemon=True).start()
    return await asyncio.wrap_future(result)
