"""The processes of a model's devices, as the engine sees them.

A process that ends or stays silent makes the step fail with a DeviceError, which says which device it
was. The rest is ended then, too, because they would wait for it. The processes end with the engine,
however that ends: by `close`, when nothing refers to it any more, or when its process is killed.

Differs from vLLM's `MultiprocExecutor` (`vllm/v1/executor/multiproc_executor.py`), which broadcasts
through shared memory and whose workers sample. Here the engine's own process samples.
"""

import contextlib
import pickle
import queue
import shutil
import tempfile
import threading
import time
import weakref
from typing import Any

from engine.parallel.forks import Process, start
from engine.parallel.settings import Parallel


class DeviceError(RuntimeError):
    """A device of a model has ended, failed or stayed silent. All devices of the model have ended."""


_PATIENCE_S = 1.0  # until the end of a process has been noticed


class Devices:
    """One process per device."""

    def __init__(self, parallel: Parallel) -> None:
        self._timeout_s = parallel.timeout_s
        self._answers: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._failed = ""
        self.store = tempfile.mkdtemp(prefix="underglass-")
        self.processes = [start() for _ in range(parallel.devices)]
        self._end = weakref.finalize(self, _end, self.processes, self.store)
        for rank, process in enumerate(self.processes):
            threading.Thread(
                target=_read, args=(process.stdout, rank, self._answers), daemon=True
            ).start()

    def call(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Send a command to every device, and return their answers. Raises DeviceError."""
        if self._failed:
            raise DeviceError(f"{self._failed}; load the engine again")
        count = len(self.processes)
        for rank, (process, own) in enumerate(zip(self.processes, arguments, strict=True)):
            assert process.stdin is not None
            try:
                pickle.dump((method, own), process.stdin)
                process.stdin.flush()
            except OSError:
                self._fail(rank, self._ended(rank))
        answers: dict[int, Any] = {}
        while len(answers) < count:
            try:
                rank, answer = self._answers.get(timeout=self._timeout_s)
            except queue.Empty:
                silent = min({*range(count)} - answers.keys())
                self._fail(silent, f"has not answered {method!r} within {self._timeout_s:g} s")
            if answer is None:
                self._fail(rank, self._ended(rank))
            error, answers[rank] = answer
            if error is not None:
                silent = {*range(count)} - answers.keys()
                self._fail(*self._cause(rank, f"failed in {method!r}: {error}", silent))
        return [answers[rank] for rank in range(count)]

    def call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Send the same command to every device."""
        return self.call(method, [arguments] * len(self.processes))

    def close(self) -> None:
        """End all processes."""
        self._failed = self._failed or "the devices were closed"
        self._end()

    def _cause(self, rank: int, what: str, silent: set[int]) -> tuple[int, str]:
        """Return which device to blame if one says that it has failed.

        A device that ends makes those fail that wait for it, and they may say so before its end is
        noticed. So the others are heard first, for a second at most.
        """
        until = time.monotonic() + _PATIENCE_S
        while silent:
            try:
                other, answer = self._answers.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                break
            if answer is None:
                return other, self._ended(other)
            silent.discard(other)
        return rank, what

    def _ended(self, rank: int) -> str:
        return f"has ended with exit code {self.processes[rank].wait()}"

    def _fail(self, rank: int, what: str) -> None:
        process = self.processes[rank]
        self._failed = f"device {rank} of {len(self.processes)} (process {process.pid}) {what}"
        self._end()
        raise DeviceError(self._failed)


def _read(stream: Any, rank: int, answers: "queue.SimpleQueue[tuple[int, Any]]") -> None:
    try:
        while True:
            answers.put((rank, pickle.load(stream)))
    except (EOFError, OSError, ValueError, pickle.UnpicklingError):
        answers.put((rank, None))


def _end(processes: list[Process], store: str) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # a command was left in its buffer
            process.stdin.close()
    shutil.rmtree(store, ignore_errors=True)
