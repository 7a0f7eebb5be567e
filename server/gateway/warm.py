"""A process that has imported everything, and forks: a server or an engine is there in a second.

Importing the server and torch takes 5 s of CPU time, and on a busy machine several times as long. So a
replica's actor starts one process that does nothing else, and asks it for each server. Such a server
asks it for each of its engine's processes. Memory that is not written to is shared, so this needs no
more of it than a server and an engine that import for themselves. The tests start their servers
in the same way.

    actor  --Fork-->  warm process --fork--> server
    server --Fork-->  warm process --fork--> engine

A request is one packet, with the new process's files and with a pipe on which the warm process tells
its id and, later, how it has ended. The warm process has only one thread, as `fork` requires: torch and
numpy start theirs when they first compute. It ends when the actor does.

Source: Python's `multiprocessing.forkserver`, and Android's zygote.
"""

import array
import fcntl
import gc
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from server.core import engine_process
from underglass import child

_PACKET_BYTES = 1 << 17
SERVER = ("server.app", "server.serving", "underglass.commands", "engine.models.loader")


class Fork(msgspec.Struct):
    """Run a function, "module:name", in a new process. The files that come with the request are its
    descriptors 0, 1, ..."""

    main: str
    arguments: list[str]
    environment: Mapping[str, str]
    directory: str


class ForkedProcess:
    """A process that was forked, with the part of `subprocess.Popen` that we use."""

    def __init__(self, warm: socket.socket, fork: Fork, files: Sequence[int]) -> None:
        told, telling = os.pipe()
        try:
            rights = array.array("i", [telling, *files])
            warm.sendmsg(
                [msgspec.json.encode(fork)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
            )
        finally:
            os.close(telling)
        self._told = os.fdopen(told, "rb", 0)
        self.returncode: int | None = None
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        line = self._told.readline()
        if not line:
            raise OSError("the process that forks has ended")
        self.pid = int(line)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            with self._told:
                self.returncode = int(self._told.readline() or -signal.SIGKILL)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its end has not been told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self.send_signal(signal.SIGKILL)


class Warm:
    """The parent's end of a warm process that has imported `modules`."""

    def __init__(self, *modules: str) -> None:
        self._connection, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                child.python("server.gateway.warm", its.fileno(), *modules),
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=child.environment(),
                start_new_session=True,
            )

    def fork(
        self, main: str, arguments: Sequence[str], files: Sequence[int], **environment: str
    ) -> ForkedProcess:
        """Run `main`, "module:name", with these arguments, files, and further variables."""
        environment = child.environment() | environment
        fork = Fork(main, list(arguments), environment, str(Path.cwd()))
        return ForkedProcess(self._connection, fork, files)


def main() -> None:
    """Fork on request, until the process that has started this one ends."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        import_module(module)
    gc.collect()
    gc.freeze()  # later collections leave the shared pages alone
    # The new processes inherit this one, for their own requests.
    asked, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    children: dict[int, tuple[int, int]] = {}  # a process's descriptor -> its id, and where to tell
    ends = {connection.fileno(): connection, asked.fileno(): asked}
    while True:
        readable, _, _ = select.select([*ends, *children], [], [])
        for ended in children.keys() & set(readable):
            pid, telling = children.pop(ended)
            _, status = os.waitpid(pid, 0)
            with suppress(BrokenPipeError):
                os.write(telling, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(telling)
            os.close(ended)
        for end in ends.keys() & set(readable):
            packet, received, _, _ = socket.recv_fds(ends[end], _PACKET_BYTES, 8)
            if not packet:
                return
            telling, *files = received
            if (pid := os.fork()) == 0:
                _run(msgspec.json.decode(packet, type=Fork), asking.fileno(), files)
            for file in files:
                os.close(file)
            with suppress(BrokenPipeError):  # the process that asked was killed meanwhile
                os.write(telling, b"%d\n" % pid)
            children[os.pidfd_open(pid)] = pid, telling


def _run(fork: Fork, asking: int, files: list[int]) -> None:
    """Become the new process; does not return."""
    os.setsid()
    module, _, name = fork.main.partition(":")
    name_in_ps = module.removesuffix(".commands").rpartition(".")[2]
    Path("/proc/self/comm").write_text(name_in_ps)
    warm = _keep_only(files, asking)
    os.environ.clear()
    os.environ.update(fork.environment)
    os.chdir(fork.directory)
    sys.argv = [module, *fork.arguments]
    random.seed()
    tempfile.tempdir = None  # TMPDIR may be another one
    engine_process.start_child = partial(_start_engine, warm)
    code: object = 0
    try:
        getattr(import_module(module), name)()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _keep_only(files: Sequence[int], warm: int) -> socket.socket:
    """Make `files` the descriptors 0, 1, ...; close all others, except the connection."""
    first = 1 + max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    kept = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, first) for one in (*files, warm)]
    os.closerange(0, first)
    for number, one in enumerate(kept[:-1]):
        os.dup2(one, number)
        os.close(one)
    return socket.socket(fileno=kept[-1])


def _start_engine(warm: socket.socket, files: Sequence[int]) -> Any:
    """Have an engine's process forked; start one as usual if the warm process has ended."""
    numbers = [str(3 + number) for number in range(len(files))]
    main = "server.core.engine_child:main"
    fork = Fork(main, numbers, child.environment(), str(Path.cwd()))
    try:
        with Path(os.devnull).open("r+b") as nothing:
            return ForkedProcess(warm, fork, [nothing.fileno(), 1, 2, *files])
    except OSError:
        return _start_child(files)


_start_child = engine_process.start_child

if __name__ == "__main__":
    main()
