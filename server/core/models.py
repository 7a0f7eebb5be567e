"""Which bridge serves the model that a request names.

    Models(bridge)              one model; it answers under any name
    Models(bridge, directory)   `--model auto`: it, and those of a directory, each loaded when asked for

Every loaded model has an engine, a bridge and an engine thread of its own; they share the processor and
nothing else. A request leases its model from the lookup to the request's end. When there is no room
for one more model, the least recently requested one without a lease is evicted (Ollama does the same,
`server/sched.go`). A request that names no model goes to the first, which is always loaded and does
not count.

A name is looked up among the directory's entries and never becomes a path: no name leaves the
directory, and nothing is fetched.

Loading happens on a thread, and streams go on meanwhile, but for one thing: the `tokenizers` library
holds the GIL while it reads a tokenizer.json. With 120,000 tokens all streams stand still for about
half a second; only a process of its own for each model would be rid of that.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Query

from engine.engine import Engine
from server.core.bridge import Bridge
from server.core.event_log import Outbox
from server.http.errors import ApiError, no_model, too_many, unavailable

ViewedModel = Annotated[
    str | None,
    Query(description="Which model, with `--model auto`: one that is loaded. Else the first."),
]


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """Where `--model auto` finds models.

    path    holds one Hugging Face model directory or GGUF file per model, whose name is the model's
    limit   how many of them may be loaded at once
    load    makes an engine of one; called on a thread of its own, raises whatever is wrong with it
    """

    path: Path
    limit: int
    load: Callable[[Path], tuple[Engine, Outbox]]

    def models(self) -> dict[str, Path]:
        """What is there now, by name. Empty when the directory cannot be read."""
        try:
            entries = sorted(self.path.resolve().iterdir())
        except OSError:
            return {}
        return {entry.name: entry for entry in entries if _is_model(entry)}


def _is_model(entry: Path) -> bool:
    # What cannot be printed can be no JSON string, either: a file name need not be UTF-8.
    if entry.name.startswith(".") or not entry.name.isprintable():
        return False
    return (entry / "config.json").is_file() or (entry.suffix == ".gguf" and entry.is_file())


@dataclass(slots=True, eq=False)
class _Entry:
    """A model that is loaded, or about to be.

    ready     its bridge, once it can take requests; or why it cannot
    leases    requests that wait for the bridge or use it
    """

    ready: asyncio.Future[Bridge]
    leases: int = 0
    engine: Engine | None = None
    loading: asyncio.Task[None] | None = None

    @property
    def bridge(self) -> Bridge | None:
        """The bridge, if the model is loaded."""
        return self.ready.result() if self.ready.done() else None

    @property
    def idle(self) -> bool:
        """Whether it may be evicted now."""
        return self.bridge is not None and not self.leases

    @property
    def failed(self) -> bool:
        """Whether its engine has ended and no request uses it any more."""
        return self.idle and self.bridge is not None and bool(self.bridge.failure)

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Keep it from being evicted while the block runs."""
        self.leases += 1
        try:
            yield
        finally:
            self.leases -= 1

    async def unload(self) -> None:
        """End the engine thread and give the memory back."""
        assert self.bridge is not None
        assert self.engine is not None
        await self.bridge.stop()
        # Weights and KV memory go now. Engine and bridge are in reference cycles, which wait for the
        # garbage collector: they are small.
        del self.engine.runner
        self.engine = None


class Models:
    """The registry. Lives on the event loop.

    first       serves whoever names no model
    directory   where the others are, with `--model auto`
    """

    def __init__(self, first: Bridge, directory: ModelDirectory | None = None) -> None:
        self.first = first
        self.settings = first.settings
        self.directory = directory
        self._entries: dict[str, _Entry] = {}  # the longest not asked for first
        self._draining = False

    def names(self) -> dict[str, bool]:
        """Every model that can be asked for, and whether it is loaded."""
        names = [self.settings.model_name, *self._found(), *self._entries]
        return {name: self.is_loaded(name) for name in names}

    @property
    def bridges(self) -> list[Bridge]:
        """Those that are loaded, the first one first."""
        loaded = [entry.bridge for entry in self._entries.values()]
        return [self.first, *(bridge for bridge in loaded if bridge is not None)]

    @asynccontextmanager
    async def lease(self, name: str | None) -> AsyncIterator[Bridge]:
        """Lend the bridge of a model to a request; load the model if need be.

        The model is not evicted before the block ends. Raises ApiError if there is no such model
        (404), it cannot be loaded, too many requests wait for it, or every loaded model has a lease.
        """
        if self._is_first(name):
            yield self.first
            return
        assert name is not None
        entry = self._entries.pop(name, None)
        if entry is None or entry.failed:
            entry = self._begin(name, entry)
        self._entries[name] = entry  # at the end: it is now the most recently requested
        limit = self.settings.max_waiting
        if entry.bridge is None and entry.leases >= limit:
            raise too_many(
                f"{entry.leases} requests wait for {name} to be loaded, the limit is {limit}: "
                "try again in a second",
                "queue_full",
                1,
            )
        with entry.lease():
            # Shielded: a request that is cancelled does not end the load for the others.
            yield await asyncio.shield(entry.ready)

    def viewed(self, name: str | None) -> Bridge:
        """Return the bridge of a loaded model, for a viewer; load nothing.

        Otherwise a page that was left open would load its model again and again. The model may be
        evicted at the next `await`. Raises ApiError for a model that does not exist (404) or is not
        loaded now (503).
        """
        if self._is_first(name):
            return self.first
        assert name is not None
        entry = self._entries.get(name)
        if entry is not None and entry.bridge is not None:
            return entry.bridge
        self._path_of(name)
        raise unavailable(
            f"{name} is not loaded: a request that names it loads it", "model_not_loaded"
        )

    @contextmanager
    def commanded(self, name: str | None) -> Iterator[Bridge]:
        """Lend the bridge of a loaded model to a teacher's command; load nothing.

        The model is not evicted before the block ends. Raises ApiError as `viewed` does.
        """
        bridge = self.viewed(name)
        entry = self._entries.get(name or "")
        with nullcontext() if entry is None else entry.lease():
            yield bridge

    def is_loaded(self, name: str | None) -> bool:
        """Whether `lease` would return at once."""
        entry = self._entries.get(name or "")
        return self._is_first(name) or (entry is not None and entry.bridge is not None)

    def start(self) -> None:
        """Start the first one's engine thread; called on the event loop."""
        self.first.start()

    async def drain(self) -> None:
        """Load nothing more, take no more requests and let those that are in finish."""
        self._draining = True
        for name, entry in list(self._entries.items()):
            if entry.loading is not None:
                entry.loading.cancel()
                self._fail(name, unavailable("the server is shutting down", "shutdown"))
        await asyncio.gather(*(bridge.drain() for bridge in self.bridges))

    async def stop(self) -> bool:
        """End every engine thread after its step. Returns False if one did not end."""
        return all(await asyncio.gather(*(bridge.stop() for bridge in self.bridges)))

    # Names

    def _is_first(self, name: str | None) -> bool:
        return self.directory is None or name is None or name == self.settings.model_name

    def _found(self) -> dict[str, Path]:
        return self.directory.models() if self.directory is not None else {}

    def _path_of(self, name: str) -> Path:
        path = self._found().get(name)
        if path is None:
            raise no_model(name)
        return path

    # Loading

    def _begin(self, name: str, failed: _Entry | None) -> _Entry:
        """Start to load a model, in the place of another if there is no room for both."""
        path = self._path_of(name)
        if self._draining:
            raise unavailable("the server is shutting down", "shutdown")
        leaving = failed or self._make_room()
        entry = _Entry(asyncio.get_running_loop().create_future())
        entry.loading = asyncio.create_task(self._load(name, path, entry, leaving))
        return entry

    def _make_room(self) -> _Entry | None:
        """Return the model to evict before one more can be loaded, taken off the list."""
        assert self.directory is not None
        if len(self._entries) < self.directory.limit:
            return None
        idle = [name for name, entry in self._entries.items() if entry.idle]
        if not idle:
            raise unavailable(
                f"all {len(self._entries)} models that may be loaded at once are busy: try again soon",
                "models_busy",
            )
        return self._entries.pop(idle[0])

    async def _load(self, name: str, path: Path, entry: _Entry, leaving: _Entry | None) -> None:
        assert self.directory is not None
        load = self.directory.load
        try:
            if leaving is not None:
                await leaving.unload()
            entry.engine, outbox = await _in_thread(lambda: load(path))
            settings = msgspec.structs.replace(self.settings, model_name=name)
            bridge = Bridge(entry.engine, outbox, settings)
            bridge.start()
            entry.ready.set_result(bridge)
            entry.loading = None
        except Exception as error:
            reason = str(error).replace(str(path), name)
            message = f"{name} cannot be loaded: {reason}"
            self._fail(name, unavailable(message, "model_not_loadable"))

    def _fail(self, name: str, error: ApiError) -> None:
        """Tell those who wait for a model; the next one who asks has it tried again."""
        ready = self._entries.pop(name).ready
        ready.set_exception(error)
        ready.exception()  # those who waited may have left: then nobody else looks at it


async def _in_thread(work: Callable[[], tuple[Engine, Outbox]]) -> tuple[Engine, Outbox]:
    """The result of `work`, done on a thread that a server which ends does not wait for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[tuple[Engine, Outbox]] = loop.create_future()

    def settle(done: tuple[Engine, Outbox] | None, failed: Exception | None) -> None:
        if result.done():  # cancelled: the server ends
            return
        if failed is not None:
            result.set_exception(failed)
        elif done is not None:
            result.set_result(done)

    def run() -> None:
        done, failed = None, None
        try:
            done = work()
        except Exception as error:
            failed = error
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            loop.call_soon_threadsafe(settle, done, failed)

    threading.Thread(target=run, name="loader", daemon=True).start()
    return await result
