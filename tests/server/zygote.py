"""Server processes by fork: a process that has imported the server, and forks for each `start`.

Importing takes longer than most tests. The zygote imports `app_under_test` and the command once per
test process, and torch when a server first needs it. It then answers two requests: fork a server, and
return the exit code of one that has ended. A server is in a session of its own and has its own streams,
environment and working directory, like one that was started by a command.

A server that starts an engine process forks, too, see `ForkedEngine`.
"""

import array
import atexit
import gc
import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from server.core import engine_child, engine_process
from underglass import child

STREAMS = 3


class ForkedProcess:
    """A server, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self, program: str, *arguments: str, stderr: int, torch: bool = False, **environment: str
    ) -> None:
        """Run `main` of the module `program` with these arguments and variables."""
        self.returncode: int | None = None
        read_in, write_in = os.pipe()
        read_out, write_out = os.pipe()
        fork = {"program": program, "arguments": arguments, "torch": torch}
        fork |= {"environ": os.environ | environment, "directory": str(Path.cwd())}
        self.pid = _ask(fork, read_in, write_out, stderr)
        os.close(read_in)
        os.close(write_out)
        self.stdin = os.fdopen(write_in, "wb", 0)
        self.stdout = os.fdopen(read_out, "rb")
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the server runs."""
        if self.returncode is None and select.select([self._ended], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the server's end and return its exit code; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("server", timeout or 0)
            os.close(self._ended)
            self.returncode = os.waitstatus_to_exitcode(_ask({"wait": self.pid}))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the server has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedEngine(subprocess.Popen[bytes]):
    """An engine process that has imported what its server has; for `engine_process.subprocess`.

    Only a server's first engine forks. When a later one starts, the server has threads that may hold
    locks, so its command is executed.
    """

    first = True

    def __init__(self, command: list[str], pass_fds: tuple[int, ...], **options: Any) -> None:
        def become_engine() -> None:
            ends = [2, *sorted(pass_fds), os.sysconf("SC_OPEN_MAX")]
            for lower, upper in itertools.pairwise(ends):
                os.closerange(lower + 1, upper)
            sys.argv = ["engine_child", *map(str, pass_fds)]
            _run(engine_child.main)

        forks, ForkedEngine.first = ForkedEngine.first, False
        super().__init__(
            command,
            pass_fds=pass_fds,
            preexec_fn=become_engine if forks else None,  # does not return, so nothing is executed
            restore_signals=not forks,  # Python ignores SIGPIPE when it starts
            **options,
        )


@cache
def _zygote() -> socket.socket:
    """Start the zygote, which ends when this process does; return the connection to it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        child.python("tests.server.zygote", its.fileno()),
        stdin=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
        env=child.environment(),
        start_new_session=True,
    )
    its.close()
    return ours


def _ask(request: dict[str, Any], *streams: int) -> int:
    _send(_zygote(), request, *streams)
    return int(json.loads(_zygote().recv(1 << 20)))


def _send(connection: socket.socket, message: object, *streams: int) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))] if streams else []
    connection.sendmsg([json.dumps(message).encode()], rights)


def main() -> None:
    """Answer requests until the test process has ended."""
    for program in (
        "tests.server.app_under_test",
        "underglass.commands",
        "server.gateway.app",
        "server.app",
    ):
        import_module(program)
    connection = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()  # collections in the servers leave the shared pages alone
    gc.set_threshold(10_000, 20, 100)  # as in tests/conftest.py
    while True:
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, STREAMS)
        if not message:
            return
        request = json.loads(message)
        if "wait" in request:
            _send(connection, os.waitpid(request["wait"], 0)[1])
            continue
        if request["torch"]:
            import_module("engine.models.loader")
        if pid := os.fork():
            for stream in streams:
                os.close(stream)
            _send(connection, pid)
            continue
        connection.close()
        _become_server(request, streams)
        _run(import_module(request["program"]).main)


def _become_server(request: dict[str, Any], streams: list[int]) -> None:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["directory"])
    sys.argv = [request["program"], *request["arguments"]]
    random.seed()
    tempfile.tempdir = None  # TMPDIR may be another one now
    engine_process.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": ForkedEngine})


def _run(work: Any) -> None:
    """Run a program to its end, as the interpreter does, and exit."""
    code: object = 0
    try:
        work()
    except SystemExit as error:
        code = error.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
