"""Event log -> widgets and HTML. Imports `engine.events` and nothing else of the engine.

    from visualizer import show
    board = show(engine.log)            # the whole board, opened where something happens
    board.step = 12                     # ... moves the picture; stepping there sets it here

Names are handed on lazily: `to_html` works where no notebook packages are installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visualizer.board import Board, show
    from visualizer.html import to_html

__all__ = ["Board", "show", "to_html"]

_HOME = {"Board": "visualizer.board", "show": "visualizer.board", "to_html": "visualizer.html"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'visualizer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
