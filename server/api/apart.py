"""Run a module that reads logs in a process of its own, because reading a log holds the GIL."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from server.http.errors import ApiError, unavailable
from underglass import child

SECONDS = 60.0
NICE = 10  # the engine and its clients come first
_LINE = 1 << 26  # bytes that a printed line may have


@asynccontextmanager
async def process_apart(
    module: str, *arguments: str | Path, stderr: int = DEVNULL
) -> AsyncIterator[Process]:
    """Start `python -m module`, whose output can be read, and end it if the caller leaves sooner."""
    process = await asyncio.create_subprocess_exec(
        *child.python(module, *arguments),
        env=child.environment(),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=stderr,
        limit=_LINE,
    )
    try:
        if hasattr(os, "setpriority"):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run_apart(what: str, code: str, module: str, *arguments: str | Path) -> bytes:
    """Return what `python -m module` prints.

    what, code  name the task in the errors: ApiError with 503 if it takes longer than `SECONDS`, and
                with 500 if it fails
    """
    async with process_apart(module, *arguments, stderr=PIPE) as process:
        try:
            async with asyncio.timeout(SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            message = f"{what} took longer than {SECONDS:.0f} s: ask for shorter runs"
            raise unavailable(message, f"{code}_too_slow") from None
    if process.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise ApiError(500, f"{what} failed: {last}", type="server_error", code=f"{code}_failed")
    return output
