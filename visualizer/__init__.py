"""Turn an event log into widgets and HTML.

Two modules start an engine, `playing/rerun.py` and `sources/mooncake_run.py`; all others read logs.

    from visualizer import show
    board = show(engine.log)            # the board, opened at a step where something happens
    board.step = 12                     # moves the board; stepping on the board updates it
    Timeline(log); BlockMap(log)        # single panels; panels of one log move together
    playground()                        # a goal, and controls that run a workload again
    compare(log, what_if(log, token_budget=32))     # two runs in one picture
    read(log).step_rows                 # rows, tables, and answers to "why?"
    watch("http://localhost:8000")      # a running server, a file that grows, or KV events
    show("run.jsonl.gz")                # a saved log of this engine, vLLM or SGLang
    show("preemption"); gallery()       # one of the bundled logs, and the list of all of them
    show(cluster_log)                   # several replicas behind one router

Each function and what it returns:

    show       Board            playground  Playground
    compare    Comparison
    watch      Live, LiveCluster for a gateway, or Followed for a file or KV events
    gallery    Gallery of Scenarios
    show       ClusterBoard, for the log of a cluster
    to_html, to_perfetto        a page or trace as a string, or as a file if a path is given

Timeline, BlockMap, RadixTree, Scheduler and Tokens are the panels of a Board. Names are imported
lazily, so `to_html` works without the notebook packages.
"""

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import underglass.shadowed  # noqa: F401 (first, so that it can name a file that hides the engine)
from engine.core.extras import needs_extra

if TYPE_CHECKING:
    from visualizer.comparing.comparison import ClusterComparison as ClusterComparison
    from visualizer.comparing.comparison import Comparison as Comparison
    from visualizer.comparing.comparison import compare as compare
    from visualizer.html import to_html as to_html
    from visualizer.live.watch import Live as Live
    from visualizer.live.watch import LiveCluster as LiveCluster
    from visualizer.live.watch import watch as watch
    from visualizer.perfetto import to_perfetto as to_perfetto
    from visualizer.playing.playground import Playground as Playground
    from visualizer.playing.playground import playground as playground
    from visualizer.reading.reading import read as read
    from visualizer.scenario import Gallery as Gallery
    from visualizer.scenario import Scenario as Scenario
    from visualizer.scenario import gallery as gallery
    from visualizer.widgets.board import BlockMap as BlockMap
    from visualizer.widgets.board import Board as Board
    from visualizer.widgets.board import RadixTree as RadixTree
    from visualizer.widgets.board import Scheduler as Scheduler
    from visualizer.widgets.board import Timeline as Timeline
    from visualizer.widgets.board import Tokens as Tokens
    from visualizer.widgets.board import show as show
    from visualizer.widgets.cluster_board import ClusterBoard as ClusterBoard

_MODULES = {
    "visualizer.widgets.board": "BlockMap Board RadixTree Scheduler Timeline Tokens show",
    "visualizer.widgets.cluster_board": "ClusterBoard",
    "visualizer.comparing.comparison": "ClusterComparison Comparison compare",
    "visualizer.html": "to_html",
    "visualizer.live.watch": "Live LiveCluster watch",
    "visualizer.scenario": "Gallery Scenario gallery",
    "visualizer.perfetto": "to_perfetto",
    "visualizer.playing.playground": "Playground playground",
    "visualizer.reading.reading": "read",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_MODULE_OF)


def draw_with(module: str, names: Iterable[str]) -> None:
    """Import these names from `module` instead, for a page that has no notebook packages."""
    _MODULE_OF.update(dict.fromkeys(names, module))


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'visualizer' has no attribute {name!r}")
    with needs_extra(name):
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
