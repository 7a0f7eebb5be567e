"""A live page inside vLLM: one variable, then a browser.

    UNDERGLASS_LIVE=8001 vllm serve MODEL

`register` is a general plugin of vLLM: each of its processes calls it, and it does nothing unless one
of the variables is set. Then the engine's process takes the recording scheduler in place of vLLM's own,
so `--scheduler-cls` is not needed. `page` starts the process that serves the page: the lines go there
through a pipe, so the engine's process neither serves nor draws, and no file is written.

UNDERGLASS_LIVE      the page's port, or ADDRESS:PORT; by default only this machine can open it
UNDERGLASS_PAGE_KEY  the secret part of the page's address, which is otherwise random and printed
UNDERGLASS_COMMAND   the command `underglass`, if it is in another environment
"""

import logging
import os
import subprocess
from typing import IO, Any

LOG = logging.getLogger("vllm.underglass")


def register() -> None:
    """Let vLLM record its scheduler. Called in each of its processes, more than once in some.

    A vLLM in which the classes have moved runs without the recorder, and its log says why.
    """
    if not {"UNDERGLASS_LIVE", "UNDERGLASS_RECORD"} & os.environ.keys():
        return
    try:
        from vllm.config.scheduler import SchedulerConfig

        if not hasattr(SchedulerConfig, "_without_underglass"):
            SchedulerConfig._without_underglass = SchedulerConfig.get_scheduler_cls
            SchedulerConfig.get_scheduler_cls = _recording
    except (ImportError, AttributeError) as error:
        LOG.warning("Underglass records nothing, because this vLLM differs: %s", error)


def _recording(config: Any) -> Any:
    """Return the recording scheduler instead of one of vLLM's own; any other one as it is."""
    found = config._without_underglass()
    try:
        import underglass_vllm as recorder
    except ImportError as error:
        LOG.warning("Underglass records nothing, because this vLLM differs: %s", error)
        return found
    mine = {
        recorder.Scheduler: recorder.RecordingScheduler,
        recorder.AsyncScheduler: recorder.RecordingAsyncScheduler,
    }
    return mine.get(found, found)


def page(rank: int) -> IO[bytes] | None:
    """Start the process that serves the page, and return the pipe to it; None if there is none.

    rank  of the scheduler, with data parallelism: each has a page of its own, on the next ports
    """
    wanted = os.environ.get("UNDERGLASS_LIVE", "")
    host, _, port = wanted.rpartition(":")
    if not wanted:
        return None
    if not port.isdecimal():
        LOG.warning("UNDERGLASS_LIVE must be a port or ADDRESS:PORT, got %s", wanted)
        return None
    command = [os.environ.get("UNDERGLASS_COMMAND", "underglass"), "open", "-", "--follow"]
    command += ["--until-end", "--no-browser", "--port", str(int(port) + rank)]
    command += ["--host", host] if host else []
    try:
        # In a session of its own, so that Ctrl-C ends vLLM first.
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True).stdin
    except OSError as error:
        LOG.warning(
            "Underglass has no live page: %s: %s. Install Underglass beside vLLM, or name its "
            "command in UNDERGLASS_COMMAND",
            command[0],
            error.strerror,
        )
        return None
