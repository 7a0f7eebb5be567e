"""Processes of devices that do not have to import torch.

A process, the forker, imports what a device needs once, and then forks for each device. It starts while
its engine imports torch itself, and ends with it. Devices of a later engine start at once.

vLLM does the same when VLLM_WORKER_MULTIPROC_METHOD is `forkserver`
(`vllm/entrypoints/launchers/api_server/entry.py`). It uses Python's own forkserver, which runs the main
script again in every process, so that script needs `if __name__ == "__main__"`; here, it does not.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import engine

_ROOT = str(Path(engine.__file__).parents[1])


class ForkedProcess:
    """A process that the forker has forked, with the part of `subprocess.Popen` that devices need."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        commands, stdin = os.pipe()
        stdout, answers = os.pipe()
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        try:
            self.pid = _ask(0, commands, answers)
        finally:
            os.close(commands)
            os.close(answers)

    def kill(self) -> None:
        """End the process, whose number stays its own until `wait`."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit code of a process that has ended or is about to."""
        if self.returncode is None:
            self.returncode = -signal.SIGKILL
            with contextlib.suppress(ChildProcessError):
                self.returncode = os.waitstatus_to_exitcode(_ask(self.pid))
        return self.returncode


Process = ForkedProcess | subprocess.Popen[bytes]


def start() -> Process:
    """Start the process of a device."""
    if hasattr(os, "fork"):
        return ForkedProcess()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return _python("from engine.parallel.worker import main; main()", **pipes)


def prepare() -> None:
    """Let the forker begin to import, where processes can fork."""
    if hasattr(os, "fork"):
        _forker(os.getpid())


@cache
def _forker(_engine: int) -> socket.socket:
    """Return the connection to the forker of the process with this number."""
    ours, its = socket.socketpair()
    with its:
        number = its.fileno()
        _python(f"from engine.parallel.forks import main; main({number})", pass_fds=[number])
    return ours


def _python(code: str, **options: Any) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, **options)


def _ask(pid: int, *streams: int) -> int:
    """Fork a process with these streams, if pid is 0, and return its number; or wait for one's end.

    Each question has a connection of its own for the answer, because the end of an unused engine asks
    from any thread, even in the middle of another question.
    """
    ours, its = socket.socketpair()
    with ours:
        with its, contextlib.suppress(BrokenPipeError):
            forker = _forker(os.getpid())
            socket.send_fds(forker, [pid.to_bytes(_BYTES)], [its.fileno(), *streams])
        answer = ours.recv(_BYTES)
    if not answer:
        _forker.cache_clear()
        raise ChildProcessError("the process that starts devices has ended; load the engine again")
    return int.from_bytes(answer)


_BYTES = 8


def main(connection: int) -> None:
    """Import what a device needs, and answer questions until the engine's process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends devices, and later ones can start
    worker = importlib.import_module("engine.parallel.worker")
    gc.freeze()  # collections in the devices leave the shared pages alone
    questions = socket.socket(fileno=connection)
    while True:
        question, descriptors, _, _ = socket.recv_fds(questions, _BYTES, 3)
        if not question:
            return
        answer, *streams = descriptors
        if pid := int.from_bytes(question):
            result = os.waitpid(pid, 0)[1]
        elif not (result := os.fork()):
            try:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.closerange(3, max(connection, *descriptors) + 1)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                worker.main()
            finally:
                traceback.print_exc()
                os._exit(1)
        with socket.socket(fileno=answer) as reply:
            reply.send(result.to_bytes(_BYTES))
        for stream in streams:
            os.close(stream)
