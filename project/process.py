"""A learner's file runs in a process of its own, which only answers questions.

    parent  has the workload, the clock, the log and the score, and never runs the file
    child   runs the file; it gets plain values, and answers in MessagePack, which cannot carry code

So nothing that the file does can change a time, a token or a score. It can only answer, take its time,
and forge the verdict of a gate, because the checks run beside it; see `uses.py`. On Linux the child is
isolated as in `underglass grade`.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from functools import cache
from threading import Timer
from typing import IO, Any, Self

import msgspec

from checks.broken import Broken
from project.learner import FREE, Mine, MineError, Source, said
from underglass import child

CPU_SECONDS = 120  # for a part that loops in C, where no lines are counted
SECONDS = 600  # for one that waits
MOST_BYTES = 1 << 24  # of an answer


class Process:
    """A process for a learner's file. Leaving the block ends it."""

    def __init__(self, source: Source) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
        self._scratch = tempfile.TemporaryDirectory()
        scratch = self._scratch.name if isolates() else ""
        self._child = subprocess.Popen(
            child.python("project.process", CPU_SECONDS, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._source = source
        self._alarm = Timer(SECONDS, self._child.kill)
        self._alarm.daemon = True
        self._alarm.start()

    def load(self) -> "Asked":
        """Run the file anew, and return what it defines. Raises MineError if that fails."""
        try:
            settings, parts = self.ask("load", self._source)
        except Broken as broken:
            raise MineError(said(broken)) from None
        return Asked(self, settings, parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._alarm.cancel()
        self._child.kill()
        self._child.communicate()
        self._scratch.cleanup()

    def ask(self, what: str, *arguments: Any) -> Any:
        """Return an answer. Raises Broken for a broken promise, and MineError for anything else."""
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            _write(self._child.stdin, pickle.dumps((what, arguments)))
            kind, value = msgspec.msgpack.decode(_read(self._child.stdout), type=tuple[str, Any])
        except (OSError, EOFError, msgspec.DecodeError):
            raise MineError(
                f"the process of mine.py ended, took {CPU_SECONDS} CPU seconds or wrote nonsense in "
                f"{what}{'' if what in ('load', 'gate') else '()'}"
            ) from None
        if kind == "broken":
            raise Broken(*map(str, value))
        if kind != "answer":
            raise MineError(str(value))
        return value


class Asked(Mine):
    """A learner's parts in a process of their own.

    The exact parts have passed their checks, so the engine's own, which do the same, stand in.
    """

    def __init__(self, process: Process, settings: dict[str, Any], parts: list[str]) -> None:
        super().__init__(settings, dict.fromkeys(parts))
        self._process = process

    def guarded(self, name: str) -> Any:
        """See `Mine`. It is a function, because an engine of a cluster gets a copy of its parts."""
        if name not in FREE or name not in self.parts:
            return None
        return lambda *arguments: self._process.ask(name, *arguments)

    def each(self, name: str) -> Any:
        """See `Mine`. One question takes as long as a hundred answers."""
        if name not in self.parts:
            return None
        return lambda values: self._process.ask("each", name, values)


@cache
def isolates() -> bool:
    """Return whether the system can take away the network, other processes and the right to write."""
    if sys.platform != "linux":
        return False
    from grading.runner import unavailable

    return not unavailable()


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(len(data).to_bytes(4, "big") + data)
    file.flush()


def _read(file: IO[bytes]) -> bytes:
    size = int.from_bytes(file.read(4), "big")
    data = file.read(size) if 0 < size <= MOST_BYTES else b""
    if len(data) < max(size, 1):
        raise EOFError
    return data


def main() -> None:
    """Answer the parent's questions until it closes the pipe. What the file prints goes to stderr."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if sys.argv[2]:
        from grading.isolation import enter, isolate

        isolate(sys.argv[2])
        enter()
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), int(sys.argv[1])))
    mine, source = Mine({}, {}), Source("", "")
    while True:
        try:
            what, arguments = pickle.loads(_read(questions))  # the parent's own
        except EOFError:
            return
        try:
            if what == "load":
                [source] = arguments
                mine = source.load()
                answer: Any = (mine.settings, sorted(mine.parts))
            elif what == "gate":
                from project.gates import GATES

                [gate] = [one for one in GATES if one.name == arguments[0]]
                answer = gate.failure(source)
            elif what == "each":
                what, values = arguments
                answer = mine.each(what)(values)  # type: ignore[misc] # the parent asks for what there is
            else:
                answer = mine.guarded(what)(*arguments)  # type: ignore[misc]
            reply = _encoded(what, answer)
        except Broken as broken:
            reply = msgspec.msgpack.encode(("broken", (broken.did, broken.promise, broken.look)))
        except MineError as error:
            reply = msgspec.msgpack.encode(("error", str(error)))
        _write(answers, reply)


def _encoded(what: str, answer: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(("answer", answer), enc_hook=lambda value: value.item())
    except Exception:
        name = "SETTINGS" if what == "load" else f"{what}()"
        raise Broken(
            f"{name} returned {answer!r}.", "a part returns plain values", "Is it a number, a list?"
        ) from None


if __name__ == "__main__":
    main()
