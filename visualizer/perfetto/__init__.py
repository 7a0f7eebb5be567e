"""Export a log as a trace for ui.perfetto.dev, chrome://tracing or Perfetto's trace processor.

    to_perfetto(log, "run.json.gz")

The trace has two processes. **engine** has a track of steps, each split into scheduling and forward
pass, a track of evictions, and counters (KV blocks, requests, tokens per step, output tokens per
second). **requests** has one lane per request. If there are many requests, a lane is reused after its
request ends. A lane shows the request's span and its phases: `waiting: <reason>`, `prefill`,
`catch-up` (recomputing output after a preemption), `decode` (consecutive steps),
`stalled: <reason>` and `preempted`. Arrows lead from a preemption to the step in which the request
resumes, from the request that computed a block to each request that found it in the cache, and from a
prompt to its samples.

Times are in microseconds since the start of the run, from a real or virtual clock. If the log was
saved without times, each step is drawn as one millisecond. The log does not record the time of an
abort, so an abort is drawn at the latest time known at that point.

Format: "Trace Event Format" (Google, 2016), JSON object form.
"""

import gzip
import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import overload

from visualizer.logs import LogLike, read_log
from visualizer.perfetto.reader import Reader
from visualizer.perfetto.trace import Trace


@overload
def to_perfetto(log: LogLike, path: None = None) -> str: ...
@overload
def to_perfetto(
    log: LogLike, path: str | Path, on_event: Callable[[object], object] = ...
) -> Path: ...
def to_perfetto(
    log: LogLike,
    path: str | Path | None = None,
    on_event: Callable[[object], object] = lambda _event: None,
) -> str | Path:
    """Return the log as trace-event JSON, or write it to `path` and return the path.

    If the path ends in `.gz`, the file is compressed. Perfetto opens both kinds. `on_event` is called
    after each event.
    """
    events = read_log(log)
    if path is None:
        text = io.BytesIO()
        Reader(events, Trace(text)).read(on_event)
        return text.getvalue().decode()
    path = Path(path)
    with path.open("wb") as file:
        # Level 6 takes half the time of the default, 9, and the file is only 2% larger. `mtime=0` makes
        # the output reproducible.
        is_packed = path.suffix == ".gz"
        packed = gzip.GzipFile("", "wb", 6, file, mtime=0) if is_packed else nullcontext(file)
        with packed as out:
            Reader(events, Trace(out)).read(on_event)
    return path
