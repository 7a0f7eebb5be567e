"""A log as a trace for ui.perfetto.dev, chrome://tracing, or a query with Perfetto's trace processor.

    to_perfetto(log, "run.json.gz")

Two processes. **engine**: a track of steps, each with its scheduling and its forward pass inside, a
track with evictions, and counters (KV blocks, requests, tokens of a step, tokens a second).
**requests**: a lane for each request, or, with many of them, lanes that are used again once a request
has ended. In a lane lies the request's life, in that its phases: `waiting: <reason>`, `prefill`,
`catch-up` (output that is computed again), `decode` (a run of steps), `stalled: <reason>`,
`preempted`. Arrows lead from a preempted phase to where the request goes on, from who computed a block
to who found it in the cache, and from a prompt to its further samples.

Times are the log's, in microseconds since the run started: real ones, or those of a virtual clock. In
a log that was saved without times every step takes one millisecond. The log does not say when an abort
came: it is drawn at the latest time known then.

Format: "Trace Event Format" (Google, 2016), JSON object form.
"""

import gzip
import io
from pathlib import Path
from typing import overload

from visualizer.logs import LogLike, read_log
from visualizer.perfetto.reader import Reader
from visualizer.perfetto.trace import Trace


@overload
def to_perfetto(log: LogLike, path: None = None) -> str: ...
@overload
def to_perfetto(log: LogLike, path: str | Path) -> Path: ...
def to_perfetto(log: LogLike, path: str | Path | None = None) -> str | Path:
    """The log as trace-event JSON: its text, or, with a `path`, the file that was written.

    A path that ends in `.gz` is compressed; Perfetto opens both.
    """
    events = read_log(log)
    if path is None:
        text = io.BytesIO()
        Reader(events, Trace(text)).read()
        return text.getvalue().decode()
    path = Path(path)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            # Level 6 takes half the time of the default 9 for 2% more; no time of day, so that the
            # same log gives the same file.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                Reader(events, Trace(packed)).read()
        else:
            Reader(events, Trace(file)).read()
    return path
