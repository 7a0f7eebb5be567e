"""`underglass serve`, whose forward passes fail while a file exists.

A real model's forward pass fails when memory runs out or a kernel has a bug, and neither happens on
request. All else is the usual server: `python -m benchmarks.chaos.poison FILE serve ...`.
"""

import os
import sys
from pathlib import Path
from typing import Any

from server import serving
from server.core import engine_process, loading
from server.core.engine_client import InProcessClient
from underglass.commands import main

_FILE = "CHAOS_POISON"


def load_with(**arguments: Any) -> InProcessClient:
    """Return an engine that the file breaks; called in the engine's process."""
    client, file = loading.load_with(**arguments), Path(os.environ[_FILE])
    runner: Any = client.engine.runner
    run = runner.run

    def run_or_fail(*given: Any) -> Any:
        if file.exists():
            raise MemoryError("no memory is left for this step")
        return run(*given)

    runner.run = run_or_fail
    return client


def _launch(_factory: str, arguments: dict[str, Any], tokenizer_of: Any) -> Any:
    return engine_process.launch("benchmarks.chaos.poison:load_with", arguments, tokenizer_of)


if __name__ == "__main__":
    os.environ[_FILE] = sys.argv.pop(1)
    vars(serving)["launch"] = _launch
    main()
