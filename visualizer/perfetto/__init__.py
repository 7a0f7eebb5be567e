"""Export a log as a trace for ui.perfetto.dev, chrome://tracing or Perfetto's trace processor.

    to_perfetto(log, "run.json.gz")

The trace has two processes. **engine** has a track of steps, each with its scheduling and its forward
pass, a track of evictions, and counters (KV blocks, requests, tokens per step, output tokens per
second). **requests** has a lane per request; with many requests, a lane is reused after its request has
ended. A lane shows the request's span and its phases: `waiting: <reason>`, `prefill`, `catch-up`
(output that is recomputed), `decode` (consecutive steps), `stalled: <reason>`, `preempted`. Arrows lead
from a preemption to where the request resumes, from the request that computed a block to one that found
it in the cache, and from a prompt to its samples.

Times are microseconds since the run started, from a real or a virtual clock. If the log was saved
without times, each step takes one millisecond. The log has no time for an abort; it is drawn at the
latest time known then.

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
    """Return the log as trace-event JSON, or write it to `path` and return the path.

    A path that ends in `.gz` is written compressed; Perfetto opens both.
    """
    events = read_log(log)
    if path is None:
        text = io.BytesIO()
        Reader(events, Trace(text)).read()
        return text.getvalue().decode()
    path = Path(path)
    with path.open("wb") as file:
        if path.suffix == ".gz":
            # Level 6 takes half the time of the default 9, and the file is 2% larger. Without a time
            # stamp, the same log gives the same file.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                Reader(events, Trace(packed)).read()
        else:
            Reader(events, Trace(file)).read()
    return path
