"""The disk as the tiers use it: one thread asks it, in order, and its answer has a deadline.

    save     returns at once; if it fails, `take_failures` says so later
    load     returns at once; `page` waits for the page, but not longer than to the deadline

A disk may be slow, or it may hang and never answer. So a fetch waits at most `DEADLINE_US` for it, and
after a missed deadline the disk is not asked again before it has answered. Neither is it after three
failures in a row, which include missed deadlines. Its blocks are then misses, with this reason.
At most `MAX_WRITES` blocks wait to be written; while that many do, no more are accepted.

On a virtual clock the thread is left out: everything is done at once, so that two runs are equal.

Source: SGLang's HiCache, whose policy "timeout" also ends a prefetch after a second or so
(`--hicache-storage-prefetch-policy`).

Differs from HiCache, whose time limit grows with the number of tokens.
"""

import queue
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from engine.core.log.recorder import Clock, VirtualTime
from engine.extensions.tier_files import BadBlock, BlockFiles, NoFiles

DEADLINE_US = 1_000_000
MAX_FAILURES = 3  # in a row, until a disk is given up
MAX_WRITES = 64  # blocks that wait to be written

_Job = tuple["Future[bytes]", Callable[[], bytes]]


@dataclass(slots=True, eq=False)
class _Worker:
    """What the thread has to do, and what is left to do when the engine ends."""

    jobs: "queue.SimpleQueue[_Job | None]" = field(default_factory=queue.SimpleQueue)
    writes: dict[bytes, "Future[bytes]"] = field(default_factory=dict)
    thread: threading.Thread | None = None
    folder: str = ""

    def ask(self, work: Callable[[], bytes]) -> "Future[bytes]":
        """Let the thread do something, after what it has to do already."""
        if self.thread is None:
            # It is a daemon, because a disk that hangs must not keep the process alive.
            self.thread = threading.Thread(
                target=_work, args=(self.jobs,), name="disk", daemon=True
            )
            self.thread.start()
        answer: Future[bytes] = Future()
        self.jobs.put((answer, work))
        return answer

    def end(self) -> None:
        """Write nothing more, delete the engine's own folder, but wait only to the deadline."""
        for waiting in self.writes.values():
            waiting.cancel()
        folder, self.folder = self.folder, ""
        if folder and self.thread is None:
            _delete(folder)
        elif folder:
            deleted = self.ask(partial(_delete, folder))
            with suppress(TimeoutError):
                deleted.result(DEADLINE_US / 1e6)
        self.jobs.put(None)


class Disk:
    """The files of the disk tier, and how the disk has answered so far.

    files  where the blocks are; in a simulation, nowhere
    """

    def __init__(self, clock: Clock) -> None:
        self.files: BlockFiles | NoFiles = NoFiles()
        self._clock = clock
        self._is_virtual = isinstance(clock, VirtualTime)
        self._worker = _Worker()
        self._late: Future[bytes] | None = None  # what it has not answered in time
        self._failures = 0
        weakref.finalize(self, self._worker.end)

    def use_own_folder(self) -> None:
        """Keep the files in a folder that ends with the engine."""
        self._worker.folder = tempfile.mkdtemp(prefix="underglass-kv-")
        self.files = BlockFiles(self._worker.folder)

    @property
    def refusal(self) -> str:
        """Why the disk is not asked for a block now; "" if it is."""
        if self._failures >= MAX_FAILURES:
            return f"after {MAX_FAILURES} failures in a row, the disk is not used any more"
        if self._late is not None and not self._late.done():
            return f"the disk has not answered for more than {DEADLINE_US / 1e6:g} s"
        return ""

    def accepted(self, count: int) -> int:
        """Return how many of `count` blocks are accepted to be written."""
        if self.refusal:
            return 0
        return count if self._is_virtual else min(count, MAX_WRITES - len(self._worker.writes))

    @property
    def write_refusal(self) -> str:
        """Why not all blocks are accepted."""
        return self.refusal or f"the disk is slow: {MAX_WRITES} blocks wait to be written"

    def save(self, key: bytes, page: bytes) -> None:
        """Write a block."""
        self._worker.writes[key] = self._ask(partial(self.files.save, key, page))

    def load(self, key: bytes) -> "Future[bytes]":
        """Begin to read a block, after what the disk has been asked before."""
        return self._ask(partial(self.files.load, key))

    def delete(self, keys: Iterable[bytes]) -> None:
        """Delete blocks."""
        for key in keys:
            self._ask(partial(self.files.delete, key))

    def deadline(self) -> int:
        """Return the time of the engine's clock until which a fetch that begins now may wait."""
        return self._clock.now() + DEADLINE_US

    def page(self, asked: "Future[bytes]", until: int) -> bytes:
        """Return the page of a block that is being read.

        Raises BadBlock if it cannot be read, and LateBlock if it is not there when the engine's clock
        says `until`.
        """
        try:
            page = asked.result(max(0, until - self._clock.now()) / 1e6)
        except TimeoutError as error:
            self._late = asked
            self._failures += 1
            raise LateBlock(f"the disk did not answer within {DEADLINE_US / 1e6:g} s") from error
        self._failures = 0
        return page

    def take_failures(self) -> dict[bytes, str]:
        """Return the blocks that could not be written since the last call, with the reason."""
        failed: dict[bytes, str] = {}
        for key, written in list(self._worker.writes.items()):
            if written.done():
                del self._worker.writes[key]
                if (error := written.exception()) is None:
                    self._failures = 0
                    continue
                self._failures += 1
                reason = error.strerror if isinstance(error, OSError) else ""
                failed[key] = f"the disk cannot write it: {reason or error}"
                if self._failures == MAX_FAILURES:
                    failed[key] += f"; {self.refusal}"
        return failed

    def _ask(self, work: Callable[[], bytes]) -> "Future[bytes]":
        if not self._is_virtual:
            return self._worker.ask(work)
        answer: Future[bytes] = Future()
        _do(answer, work)
        return answer


class LateBlock(BadBlock):
    """A block did not come in time."""


def _work(jobs: "queue.SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        _do(*job)
        del job


def _do(answer: "Future[bytes]", work: Callable[[], bytes]) -> None:
    if answer.set_running_or_notify_cancel():
        try:
            answer.set_result(work())
        except Exception as error:
            answer.set_exception(error)


def _delete(folder: str) -> bytes:
    shutil.rmtree(folder, ignore_errors=True)
    return b""
