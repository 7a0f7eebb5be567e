"""Read the log of an engine, this project's or another: each kind of source has a `Reader` here.

    read_source("run.jsonl.gz")      an EventLog, or the ClusterLog of a gateway

A file is recognized by its first line. docs/sources.md says what each source knows, and how to add a
reader: write a `Translator` in a module of its own, and list its `Reader` in `READERS`.
"""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from engine.events import EventLog, LogError
from engine.events.cluster_log import ClusterLog
from visualizer.sources.collector import without_gc
from visualizer.sources.feed import Feed
from visualizer.sources.kv_events import KV_EVENTS
from visualizer.sources.limits import CHUNK
from visualizer.sources.mooncake import MOONCAKE
from visualizer.sources.own_logs import CLUSTER_LOG, ENGINE_LOG
from visualizer.sources.reader import Reader, SourceError, Translator
from visualizer.sources.sglang_metrics import SGLANG_METRICS
from visualizer.sources.vllm_recorder import VLLM_RECORDER
from visualizer.sources.window import Window

__all__ = [
    "READERS",
    "LogError",
    "Reader",
    "SourceError",
    "Translator",
    "read_source",
]

# The first that recognizes a line reads the file. Our own kinds are last: they take the most lines.
READERS: tuple[Reader, ...] = (
    VLLM_RECORDER,
    KV_EVENTS,
    SGLANG_METRICS,
    MOONCAKE,
    CLUSTER_LOG,
    ENGINE_LOG,
)


def read_source(
    source: bytes | Path | str | BinaryIO,
    last: int | None = None,
    *,
    limit: int | None = None,
    tell: Callable[[str], None] = lambda _note: None,
) -> EventLog | ClusterLog:
    """Read a file, given by its path, or its content. It is never in memory as a whole.

    last   how many unpacked bytes of the file to keep: the last events, after a keyframe of the earlier
           ones; None keeps all
    limit  how many unpacked bytes to accept
    tell   is called with a note about what is not kept

    Raises SourceError for more than these, and for a line that is damaged or of no known kind, OSError
    for an unreadable file, and LogError for an event that has to be folded and does not fit.
    """
    feed, window = Feed(READERS, limit), Window(last)
    chunk = CHUNK if last is None else min(CHUNK, max(1, last // 8))
    with _opened(source) as file, without_gc():
        while data := file.read(chunk):
            before = feed.unpacked
            window.add(feed.push(data), feed.unpacked - before)
        window.add(feed.end(), 0)
    if window.folded:
        tell(f"the first {window.folded:,} events are not shown, but what they led to")
    return window.log()


def _opened(source: bytes | Path | str | BinaryIO) -> AbstractContextManager[BinaryIO]:
    if isinstance(source, Path | str):
        return Path(source).open("rb")
    return nullcontext(io.BytesIO(source) if isinstance(source, bytes) else source)
