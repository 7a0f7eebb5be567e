"""The steps of a vLLM that ran with `underglass_vllm`, from what it recorded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Preempted, RequestFinished, StepScheduled, StepStarted
from parity.records import Row, Step
from visualizer.sources import read_source


@contextmanager
def recording_to(path: Path, *, tokens: bool = True) -> Iterator[Path]:
    """Let the recorders that are made meanwhile write to a file. Yield its path."""
    ours = {"UNDERGLASS_RECORD": str(path), "UNDERGLASS_RECORD_TOKENS": str(int(tokens))}
    with patch.dict(os.environ, ours):
        yield path


def read_recording(source: Path | bytes) -> EventLog:
    """Read what was recorded of one engine."""
    log = read_source(source)
    assert isinstance(log, EventLog)
    return log


def steps_of(log: EventLog) -> list[Step]:
    """Return each pass of vLLM's loop. Requests that were aborted have not finished."""
    state, steps = State(), list[Step]()
    for event in log:
        if isinstance(event, StepStarted):
            steps.append(Step([], [], [], 0, {}))
        elif isinstance(event, Preempted):
            steps[-1].preempted.append(event.request)
        elif isinstance(event, RequestFinished) and event.reason != "abort":
            steps[-1].finished.append(event.request)
        state.apply(event)
        if isinstance(event, StepScheduled):
            step = steps[-1]
            step.rows += [Row(row.request, row.start, row.count) for row in event.rows]
            step.tables |= {
                row.request: list(state.requests[row.request].block_table) for row in event.rows
            }
            step.free = len(state.free) + len(state.queue)
    return steps
