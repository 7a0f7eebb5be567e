"""Read the log of this project's engine or of another one. Each kind of source has a `Reader` here.

    read_source("run.jsonl.gz")      an EventLog, or the ClusterLog of a gateway

A file is recognized by its first line. docs/sources.md says which facts each source has, and how to
add a reader: write a `Translator` in a module of its own, and list its `Reader` in `READERS`.
"""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from engine.cluster.cluster_log import ClusterLog
from engine.core.log import EventLog
from engine.core.log import LogError as LogError
from visualizer.sources.collector import without_gc
from visualizer.sources.feed import Feed
from visualizer.sources.kv_events import KV_EVENTS
from visualizer.sources.limits import CHUNK
from visualizer.sources.mooncake import MOONCAKE
from visualizer.sources.own_logs import CLUSTER_LOG, ENGINE_LOG
from visualizer.sources.reader import Reader as Reader
from visualizer.sources.reader import SourceError as SourceError
from visualizer.sources.reader import Translator as Translator
from visualizer.sources.sglang_metrics import SGLANG_METRICS
from visualizer.sources.vllm_recorder import VLLM_RECORDER
from visualizer.sources.window import Window, left_out

# The first reader that recognizes a file's first line reads the file. The project's own logs come last
# because their readers recognize the most lines.
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
    tell_damage: Callable[[str], None] = lambda _note: None,
) -> EventLog | ClusterLog:
    """Read a log from a path, from bytes or from an open file, in chunks.

    last   how many unpacked bytes to keep: the last events, after a keyframe that replaces the earlier
           ones; None keeps all events
    limit  how many unpacked bytes to accept; None accepts any number
    tell   is called with a note if events are left out
    tell_damage  is called with a note for each line that cannot be read, and if the end is missing

    Raises SourceError if the log exceeds `limit`, or has a damaged line that it cannot go on without,
    OSError if the file cannot be read, and LogError if an event that goes into the keyframe contradicts
    the events before it.
    """
    feed, window = Feed(READERS, limit), Window(last)
    chunk = CHUNK if last is None else min(CHUNK, max(1, last // 8))
    with _opened(source) as file, without_gc():
        while data := file.read(chunk):
            before = feed.unpacked
            window.add(feed.push(data), feed.unpacked - before)
        window.add(feed.end(), 0)
    for note in feed.damage:
        tell_damage(note)
    if window.folded:
        tell(left_out(window.folded))
    return window.log()


def _opened(source: bytes | Path | str | BinaryIO) -> AbstractContextManager[BinaryIO]:
    if isinstance(source, Path | str):
        return Path(source).open("rb")
    return nullcontext(io.BytesIO(source) if isinstance(source, bytes) else source)
