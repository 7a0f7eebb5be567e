"""Event log -> widgets and HTML. Imports `engine.events` and nothing else of the engine.

    from visualizer import show
    board = show(engine.log)            # the whole board, opened where something happens
    board.step = 12                     # ... moves the picture; stepping there sets it here
    Timeline(log); BlockMap(log)        # panels that stand alone; those of one log move together
    playground()                        # controls over a workload that re-run it
    compare(log, what_if(log, token_budget=32))     # two runs on one cursor
    predict(log)                        # asks what comes next, and then shows it
    watch("http://localhost:8000")      # a running server, as it goes on
    show("preemption"); gallery()       # one of the logs that come with the project; all of them

Names are handed on lazily: `to_html` works where no notebook packages are installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visualizer.board import BlockMap, Board, RadixTree, Scheduler, Timeline, Tokens, show
    from visualizer.comparison import compare
    from visualizer.html import to_html
    from visualizer.live import watch
    from visualizer.named_logs import gallery
    from visualizer.perfetto import to_perfetto
    from visualizer.playing.playground import playground
    from visualizer.prediction import predict

__all__ = [
    "BlockMap",
    "Board",
    "RadixTree",
    "Scheduler",
    "Timeline",
    "Tokens",
    "compare",
    "gallery",
    "playground",
    "predict",
    "show",
    "to_html",
    "to_perfetto",
    "watch",
]

_BOARD = "visualizer.board"
_HOME = {
    "BlockMap": _BOARD,
    "Board": _BOARD,
    "RadixTree": _BOARD,
    "Scheduler": _BOARD,
    "Timeline": _BOARD,
    "Tokens": _BOARD,
    "compare": "visualizer.comparison",
    "gallery": "visualizer.named_logs",
    "playground": "visualizer.playing.playground",
    "predict": "visualizer.prediction",
    "show": _BOARD,
    "to_html": "visualizer.html",
    "to_perfetto": "visualizer.perfetto",
    "watch": "visualizer.live",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'visualizer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
