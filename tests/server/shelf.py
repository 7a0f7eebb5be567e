"""A directory of models that are no models, and the registry over it."""

import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from server.core.bridge import Bridge
from server.core.engine_client import InProcessClient
from server.core.models import ModelDirectory, Models
from server.core.settings import ServerSettings
from tests.server.app_under_test import AlphabetRunner
from tests.server.bridges import alphabet


class Shelf:
    """Loads models that are no models; `gate` holds all loads back while it is not set."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.gate = threading.Event()
        self.gate.set()
        self.loads: list[str] = []
        self.broken: set[str] = set()
        self.runners: dict[str, weakref.ref[AlphabetRunner]] = {}
        for name in names:
            (path / name).mkdir()
            (path / name / "config.json").touch()

    def load(self, path: Path) -> InProcessClient:
        self.loads.append(path.name)
        self.gate.wait(60)
        if path.name in self.broken:
            raise ValueError(f"{path}/config.json is no good")
        runner = AlphabetRunner(None)
        self.runners[path.name] = weakref.ref(runner)
        return alphabet(runner)


@asynccontextmanager
async def registry(shelf: Shelf, limit: int = 1, **settings: int) -> AsyncIterator[Models]:
    first = Bridge(alphabet(), ServerSettings(**settings))
    models = Models(first, ModelDirectory(shelf.path, limit, shelf.load))
    models.start()
    yield models
    await models.stop()
