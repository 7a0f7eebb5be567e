"""A pytest plugin for Pyodide: skip a test when it needs a library, a thread, a process or a socket.

A test shows what it needs by asking for it, so no list of tests has to be kept.
"""

import ast
import importlib.abc
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from engine.core.extras import EXTRA_OF

# A command without its bar, and tests of the whole repository.
_TOLERATED = {"tqdm"}
_OF_TESTS = {"jsonschema", "nbclient", "openai", "sentencepiece", "transformers", "typer"}
_MISSING = (EXTRA_OF.keys() | _OF_TESTS) - _TOLERATED


class _Missing(importlib.abc.MetaPathFinder):
    """Skip the test, or the module of tests, that imports a library which Pyodide does not have."""

    def find_spec(self, name: str, *_: object) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        if name.partition(".")[0] in _MISSING:
            pytest.skip(f"needs {name.partition('.')[0]}", allow_module_level=True)


def _skipping(need: str) -> Callable[..., NoReturn]:
    def skip(*_: Any, **__: Any) -> NoReturn:
        pytest.skip(f"needs {need}", allow_module_level=True)

    return skip


def pytest_configure(config: pytest.Config) -> None:
    """Replace what WebAssembly lacks."""
    config.addinivalue_line("markers", "timeout: of pytest-timeout, which needs signals")
    sys.meta_path.insert(0, _Missing())
    threading.Thread.start = _skipping("a thread")  # type: ignore[method-assign]
    subprocess.Popen.__init__ = _skipping("a process")  # type: ignore[method-assign]
    shutil.which = lambda command, **_: command  # the test goes on to run it, which needs a process
    os.fork = _skipping("a process")
    socket.socket.bind = socket.socket.connect = _skipping("a socket")  # type: ignore[method-assign]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder whose conftest.py needs a library that is missing."""
    conftest = collection_path / "conftest.py"
    if not conftest.is_file():
        return None
    imported = {
        name.partition(".")[0]
        for node in ast.parse(conftest.read_text("utf-8")).body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    return True if imported & _MISSING else None
