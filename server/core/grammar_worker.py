"""Try a client's grammar in a process that can be killed: `python -m server.core.grammar_worker`.

    event loop                                      worker
    GrammarWorker.check  --a grammar-->             compiles it and computes a few masks
                         <--"", or what is wrong--

A small grammar can take a second to compile, and on the tokenizer thread every other prompt would wait
for it. So a grammar is tried here first, and its request is queued once the worker has found that the
grammar exceeds no limit. The worker answers with a verdict only, because a compiled grammar cannot be
sent to another process. The engine's process compiles it again, which is cheap now, on a thread that
no prompt without a grammar waits for (`InProcessClient.post`).

The kernel ends a worker that computes for longer than `CPU_SECONDS` on one grammar. The limit counts
computing time, so that a busy machine rejects no more than an idle one. The worker tries one grammar at
a time, and clients share its time: first the addresses equally, then the labels of each address. A
client with a hundred grammars therefore delays another client's grammar by one of them, and it delays
no request without a grammar at all; such requests may overtake it.

The worker starts with the first grammar, and ends with its parent, which closes its input.

Source: vLLM compiles grammars on a pool of threads (`vllm/v1/structured_output/__init__.py`). The
sharing is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Differs from vLLM: a grammar
has a deadline, clients share the worker's time, and only verdicts are kept (see `GrammarCompiler`).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import msgspec

from engine.core.extras import MissingExtraError
from engine.core.sampling_params import StructuredOutput
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.extensions.grammars.grammar_error import GrammarError

if TYPE_CHECKING:
    from engine.core.tokenizer import Tokenizer

CPU_SECONDS = 2.0  # for one grammar; those of honest clients take less than 0.1 s
_TRIES = 2  # how many workers may end by themselves while they try one grammar
_KNOWN = 256  # verdicts
# A grammar that is known to compile in less time is not tried again. The others are: the engine's
# process compiles each of them again, so each takes its turn.
_CHEAP = 0.02  # seconds

Client = tuple[str, str]  # address, label


class GrammarWorkerError(Exception):
    """No worker could try a grammar. The message says why."""


class Vocabulary(msgspec.Struct):
    """The part of a tokenizer that a grammar depends on, as the worker receives it."""

    tokens: list[bytes]
    special_ids: list[int]
    eos_ids: list[int]
    bos_id: int | None


class Verdict(NamedTuple):
    """Why a grammar cannot be compiled, or "", and the seconds of computing time that it took."""

    problem: str
    seconds: float


@dataclass(slots=True, eq=False)
class _Job:
    """A grammar that a request waits for."""

    structured: StructuredOutput
    client: Client
    verdict: asyncio.Future["Verdict"]


class GrammarWorker:
    """Tries the grammars of one engine's requests. Lives on the event loop.

    process   the worker, or None before the first grammar
    trying    the grammar that it tries now, or None
    """

    def __init__(self, tokenizer: "Tokenizer", cpu_seconds: float = CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.trying: StructuredOutput | None = None
        self._tokenizer = tokenizer
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")  # waits for the worker
        self._known: OrderedDict[StructuredOutput, Verdict] = OrderedDict()
        self._jobs: list[_Job] = []
        self._running: asyncio.Task[None] | None = None
        # Virtual seconds: when the grammar being tried started, and when an address's or a client's
        # last one ended, as if each had the worker for itself. The two levels have separate clocks.
        self._now = (0.0, 0.0)
        self._ends: dict[str | Client, float] = {}

    async def check(self, structured: StructuredOutput, client: Client) -> None:
        """Wait until a grammar has been tried.

        Raises GrammarError if it cannot be compiled within the limits, and GrammarWorkerError. When the
        caller is cancelled, a grammar that has not had its turn is not tried.
        """
        verdict = self._recall(structured)
        if verdict is None:
            job = _Job(structured, client, asyncio.get_running_loop().create_future())
            self._jobs.append(job)
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._run())
            try:
                verdict = await job.verdict
            finally:
                if job in self._jobs:
                    self._jobs.remove(job)
        if verdict.problem:
            raise GrammarError(verdict.problem)

    def close(self) -> None:
        """End the worker. Requests that still wait for it get a GrammarWorkerError."""
        self._closed = True
        if self.process is not None:
            self.process.kill()
            self._thread.submit(self._end)
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            job = min(self._jobs, key=self._starts_of)
            self._jobs.remove(job)
            self._now = starts = self._starts_of(job)
            verdict = self._recall(job.structured)  # another job may have been about it
            try:
                if verdict is None:
                    self.trying = job.structured
                    verdict = await loop.run_in_executor(self._thread, self._ask, job.structured)
            except Exception as error:
                if not job.verdict.done():
                    job.verdict.set_exception(error)
                continue
            finally:
                self.trying = None
            self._ends[job.client[0]] = starts[0] + verdict.seconds
            self._ends[job.client] = starts[1] + verdict.seconds
            self._known[job.structured] = verdict
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
            if not job.verdict.done():
                job.verdict.set_result(verdict)
        self._now = (0.0, 0.0)
        self._ends.clear()

    def _starts_of(self, job: _Job) -> tuple[float, float]:
        """Return the virtual start of a grammar; the smallest one is the next."""
        address, client = self._ends.get(job.client[0], 0.0), self._ends.get(job.client, 0.0)
        return max(self._now[0], address), max(self._now[1], client)

    def _recall(self, structured: StructuredOutput) -> Verdict | None:
        """Return a verdict that spares a turn."""
        verdict = self._known.get(structured)
        if verdict is None or not (verdict.problem or verdict.seconds < _CHEAP):
            return None
        self._known.move_to_end(structured)
        return verdict

    # On the thread

    def _ask(self, structured: StructuredOutput) -> Verdict:
        """Return the worker's verdict; start a worker if there is none."""
        for _ in range(_TRIES):
            if self._closed:
                raise GrammarWorkerError("the process that compiles grammars has been closed")
            messages = [] if self.process is not None else [self._vocabulary()]
            worker = self.process = self.process or _start(self._cpu_seconds)
            if self._closed:  # while it started
                worker.kill()
            answer = _exchange(worker, *messages, structured)
            if answer.endswith(b"\n"):
                return msgspec.json.decode(answer, type=Verdict)
            code = self._end()
            if code == -signal.SIGPROF:
                problem = (
                    f"takes longer than {self._cpu_seconds:g} s of computing time to compile, which "
                    "is the limit: make it smaller"
                )
                return Verdict(problem, self._cpu_seconds)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise GrammarWorkerError(f"the process that compiles grammars ended with {how}, twice")

    def _vocabulary(self) -> Vocabulary:
        one = self._tokenizer
        tokens = [one.token_bytes(i) for i in range(one.vocab_size)]
        return Vocabulary(tokens, sorted(one.special_ids), sorted(one.eos_ids), one.bos_id)

    def _end(self) -> int:
        """Close the connection to a worker that has ended or ends then; return its exit code."""
        worker, self.process = self.process, None
        if worker is None:
            return 0
        with suppress(OSError):  # it has not read everything
            _pipe(worker.stdin).close()
        _pipe(worker.stdout).close()
        return worker.wait()


def _start(cpu_seconds: float) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "server.core.grammar_worker", str(cpu_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except OSError as error:
        raise GrammarWorkerError(f"grammars cannot be compiled now: {error.strerror}") from error


def _exchange(worker: "subprocess.Popen[bytes]", *messages: object) -> bytes:
    """Send messages and return the answer to the last one; it has no end if the worker ended."""
    try:
        _pipe(worker.stdin).writelines(map(_line, messages))
        _pipe(worker.stdin).flush()
        return _pipe(worker.stdout).readline()
    except OSError:
        return b""


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None
    return end


def _line(message: object) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class _WorkerTokenizer:
    """A tokenizer with a vocabulary and no model. It splits text into the longest tokens.

    Tokens that a grammar forces may differ from the real tokenizer's; no limit depends on them.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocab_size = len(vocabulary.tokens)
        self.special_ids = frozenset(vocabulary.special_ids)
        self.eos_ids = frozenset(vocabulary.eos_ids)
        self.bos_id = vocabulary.bos_id
        self._tokens = vocabulary.tokens
        plain = (i for i in range(self.vocab_size) if i not in self.special_ids)
        self._ids = {self._tokens[i]: i for i in plain if self._tokens[i]}
        self._longest = max(map(len, self._ids), default=0)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def encode_ordinary(self, text: str) -> list[int]:
        rest, ids = text.encode(), list[int]()
        while rest:
            ends = range(min(self._longest, len(rest)), 0, -1)
            end = next((end for end in ends if rest[:end] in self._ids), 0)
            if not end:  # the vocabulary lacks a byte
                break
            ids.append(self._ids[rest[:end]])
            rest = rest[end:]
        return ids


def _verdicts(lines: Iterator[bytes], cpu_seconds: float) -> Iterator[Verdict]:
    """Yield the verdict about each grammar; the first line is the vocabulary."""
    vocabulary = msgspec.json.decode(next(lines), type=Vocabulary)
    compiler = GrammarCompiler(cast("Tokenizer", _WorkerTokenizer(vocabulary)))
    with suppress(MissingExtraError):  # reading the vocabulary is not part of any grammar's time
        compiler.constraint(StructuredOutput("choice", '["a"]'))
    for line in lines:
        try:
            began = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)  # then SIGPROF ends the process
            compiler.constraint(msgspec.json.decode(line, type=StructuredOutput))
            problem = ""
        except (GrammarError, MissingExtraError) as error:
            problem = str(error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        yield Verdict(problem, time.process_time() - began)


def _main() -> None:
    lines = iter(sys.stdin.buffer.readline, b"")
    for verdict in _verdicts(lines, float(sys.argv[1])):
        sys.stdout.buffer.write(_line(verdict))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
