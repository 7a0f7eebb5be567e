"""Start a process for each notebook, watch its limits and turn its end into a row."""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from grading.isolation import TOO_MANY_PROCESSES
from grading.submissions import NOTEBOOKS, Exercise, Submission

MOST_OUTPUT = 16 << 20  # bytes that a notebook may print
START_SECONDS = 180  # for the imports, on a machine that is busy
PATIENCE = 3  # wall seconds for each CPU second of the limit
MOST_RESULT = 64 << 10  # bytes of a verdict
_CHILD = "from grading.child import main; main()"
_PROBE = "import sys; from grading.isolation import *; isolate(sys.argv[1]); enter()"


@dataclass(frozen=True)
class Limits:
    """What one notebook may use: CPU seconds, and bytes of memory in each process."""

    seconds: int = 30
    memory: int = 1 << 30


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    student: str
    lesson: str
    part: str
    result: str  # "passed", "failed" or "not written"
    message: str
    details: str
    seconds: float
    limit: str  # the limit that the notebook hit, or ""
    uses: str  # names in the code that no exercise needs
    file: str


class _Verdict(msgspec.Struct):
    """What the process writes after its nonce."""

    result: Literal["passed", "failed", "not written"]
    message: str
    details: str


@dataclass
class _End:
    """How a process ended: its verdict lines, the limit that the watcher enforced, and the time."""

    result: bytes
    limit: str
    code: int
    seconds: float


def unavailable() -> str:
    """Return why this system does not isolate a process; "" if it does."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-P", "-c", _PROBE, scratch]
        end = subprocess.run(
            command, env=_environment(scratch), capture_output=True, text=True, check=False
        )
    return "" if end.returncode == 0 else end.stderr.strip().splitlines()[-1]


def grade(
    submissions: Iterable[Submission], limits: Limits, *, isolated: bool, jobs: int
) -> Iterator[Row]:
    """Yield a row for each exercise of each submission, in order, as they are done."""
    tasks = [(one, exercise) for one in submissions for exercise in one.exercises]
    stop = threading.Event()

    def row(task: tuple[Submission, Exercise]) -> Row:
        return grade_one(*task, limits, stop, isolated=isolated)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(row, tasks)
        finally:  # Ctrl-C ends the running ones, too
            stop.set()
            pool.shutdown(cancel_futures=True)


def grade_one(
    submission: Submission,
    exercise: Exercise,
    limits: Limits,
    stop: threading.Event,
    *,
    isolated: bool,
) -> Row:
    """Run one exercise of one notebook in a process of its own."""
    nonce = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        job = {
            "notebook": str(submission.path.resolve()),
            "check": exercise.check,
            "parts": exercise.parts,
            "others": [one.parts for one in submission.exercises if one != exercise],
            "nonce": nonce,
            "scratch": scratch,
            "isolated": isolated,
            "seconds": limits.seconds,
            "memory": limits.memory,
        }
        end = _run(job, scratch, PATIENCE * limits.seconds, stop)
    return Row(
        student=submission.student,
        lesson=submission.lesson,
        part=", ".join(exercise.parts),
        **_verdict(end, nonce),
        seconds=end.seconds,
        uses=", ".join(_first_line(end.result)),
        file=submission.file,
    )


def _verdict(end: _End, nonce: str) -> dict[str, str]:
    """Return a row's result, message, details and limit."""
    stopped = {TOO_MANY_PROCESSES: "processes", 128 + signal.SIGXCPU: "time"}
    if limit := end.limit or stopped.get(end.code, ""):
        return _none(f"the code was stopped, because it hit the limit on {limit}", limit)
    lines = [line for line in end.result.split(b"\n") if line.startswith(nonce.encode())]
    if len(lines) != 1 or end.code != 0:
        how = f"signal {end.code - 128}" if end.code > 128 else f"exit code {end.code}"
        return _none(f"the process ended with {how} before the check was over")
    try:
        verdict = msgspec.json.decode(lines[0][len(nonce) :], type=_Verdict)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _none("the code signed something else")
    limit = "memory" if "MemoryError" in verdict.message else ""
    return {**msgspec.structs.asdict(verdict), "limit": limit}


def _first_line(result: bytes) -> list[str]:
    """Return what the child wrote before the learner's code ran, which that cannot change."""
    names: list[str] = json.loads(result.partition(b"\n")[0] or b"[]")
    return names


def _none(why: str, limit: str = "") -> dict[str, str]:
    return {"result": "failed", "message": f"No verdict: {why}.", "details": "", "limit": limit}


def _run(job: dict[str, Any], scratch: str, wall_seconds: float, stop: threading.Event) -> _End:
    """Run a job to its end or to a limit, and kill its process group."""
    result, result_of_child = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(scratch),
        pass_fds=[result_of_child],
        start_new_session=True,
    ) as process:
        os.close(result_of_child)
        assert process.stdin is not None and process.stdout is not None
        line = json.dumps({**job, "result": result_of_child}).encode() + b"\n"
        try:
            os.write(process.stdin.fileno(), line)
            return _watch(process, result, process.stdout.fileno(), wall_seconds, stop)
        finally:
            _kill(process)
            os.close(result)


def _watch(
    process: "subprocess.Popen[bytes]",
    result: int,
    output: int,
    wall_seconds: float,
    stop: threading.Event,
) -> _End:
    """Read what the process writes, until it ends, hits a limit or has to stop."""
    received, printed, limit = b"", 0, ""
    started = time.monotonic()
    deadline = started + START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(result, selectors.EVENT_READ)
        selector.register(output, selectors.EVENT_READ)
        while selector.get_map() and not limit and not stop.is_set():
            ended = process.poll() is not None
            ready = selector.select(0 if ended else 0.1)
            if ended and not ready:  # a process that it left behind may hold the pipes open
                break
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                elif key.fd == output:
                    printed += len(data)
                else:
                    if not received:  # the imports are done
                        started = time.monotonic()
                        deadline = started + wall_seconds
                    received += data
            if printed > MOST_OUTPUT or len(received) > MOST_RESULT:
                limit = "output"
            elif time.monotonic() > deadline:
                limit = "time"
    seconds = time.monotonic() - started
    if limit or stop.is_set():
        _kill(process)
    return _End(received, limit, _shell_code(process.wait()), seconds)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process group, which outlives its leader."""
    # macOS raises PermissionError for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _environment(scratch: str) -> dict[str, str]:
    """Return an environment without the teacher's variables, keys included."""
    paths = [str(NOTEBOOKS), str(NOTEBOOKS.parent)]
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "HOME": scratch,
        "TMPDIR": scratch,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
