"""A server process with a fake model: it recites the alphabet, and fails on request.

Started by the tests with one JSON argument. The request's label decides what the engine does, so that
each test says in its requests what should go wrong:

    fail-after-N   the forward pass raises once the request has N output tokens
    break          the engine's own loop raises
    gate           the forward pass does not return until a test writes to the FIFO
    hang           the forward pass says so in the FIFO, and holds the GIL for ever

With `checking`, a runner takes its place that checks every read of KV memory; with `model`, a real one.

A prompt that begins with "gate" is not tokenized until a test writes to the FIFO, either. With
`start_gate`, an engine that is started again waits for that FIFO.
"""

import ctypes
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.cache.radix_tree import RadixTree
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.request import Request, TokenScore
from engine.core.runner import Row, Sampled
from engine.core.scheduling.policies import Policy
from engine.simulation.checking_runner import CheckingRunner
from server.core.engine_client import EngineClient, EngineDiedError, InProcessClient
from server.core.engine_process import launch
from server.core.event_log import Outbox, Recording, TraceFile
from server.core.kv_publisher import KVPublisher
from server.core.loading import load, tokenizer_of
from server.core.settings import ServerSettings, Start
from server.http.protocol import HttpProtocol
from server.http.request_log import LogWriter
from server.serving import listen, run_server, url_of

gc.set_threshold(10_000, 20, 100)  # as in tests/conftest.py

# Where a test does not say so: the whole suite can run with the engine in a process of its own.
TWO_PROCESSES = os.environ.get("TEST_TWO_PROCESSES") == "1"


class GatedTokenizer(ByteTokenizer):
    """Takes its time over some prompts."""

    gate: str | None = None

    def encode(self, text: str) -> list[int]:
        if text.startswith("gate"):
            Path(self.gate).read_bytes()  # waits for a writer
        return super().encode(text)


TOKENIZER = GatedTokenizer()
STOP = TOKENIZER.token_id("<|assistant_end|>")


class AlphabetRunner:
    """The n-th output token is the n-th letter; sample s starts s letters later.

    A prompt that ends in "?" is answered with five letters and the end token.
    """

    max_context: int | None = None
    window: int | None = None
    expert_loads: Sequence[Sequence[int]] = ()

    def __init__(self, gate: str | None) -> None:
        self.gate = gate

    def describe(self) -> dict[str, Any]:
        return {"name": "alphabet", "parameters": 0}

    def reserve(self, num_blocks: int, block_size: int) -> None:
        pass

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        for row in rows:
            self._trouble(row.request)
            row.scores = [TokenScore(0.0, [])] * row.scored
        return [
            [Sampled([self._next(row.request, sample)], [0.0]) for sample in row.samples]
            for row in rows
        ]

    def _next(self, request: Request, sample: int) -> int:
        written = len(request.tokens) - request.prompt_length
        if request.tokens[request.prompt_length - 1] == ord("?") and written == 5:
            return STOP
        return 97 + (written + sample) % 26

    def _trouble(self, request: Request) -> None:
        kind, _, number = request.label.rpartition("-")
        written = len(request.tokens) - request.prompt_length
        if kind == "fail-after" and written >= int(number):
            raise RuntimeError("told to fail")
        if request.label == "gate":
            request.label = "gate passed"
            Path(self.gate).read_bytes()  # waits for a writer
        elif request.label == "hang":
            Path(self.gate).write_bytes(b"hangs")  # waits for a reader
            ctypes.PyDLL(None).pause()


def next_letter(tokens: Sequence[int], seed: int) -> int:
    """Depends on the last six tokens and the seed."""
    return 97 + hash((*tokens[-6:], seed)) % 26


class PricedRunner(CheckingRunner):
    """Checks every read of KV, and takes half a millisecond to compute a token."""

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        time.sleep(0.0005 * sum(row.count for row in rows))
        return super().run(rows, copies)


class BreakingPolicy(Policy):
    """First come, first served, unless it is asked about a request labelled "break"."""

    keys_change = True

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        if request.label == "break":
            raise RuntimeError("told to break")
        return super().key(request, tree)


def engine_with(options: dict[str, Any]) -> InProcessClient:
    """The engine that `options` ask for; called in its process."""
    server = options.get("server", {})
    config = EngineConfig(**options.get("engine", {}))
    if "model" in options:
        start = Start(model=options["model"], paused=bool(options.get("paused")))
        return load(start, config, texts=True)
    outbox = Outbox(texts=server.get("trace_text") != "off")
    if options.get("run", 1) > 1 and "start_gate" in options:
        Path(options["start_gate"]).read_bytes()  # waits for a writer
    runner: Any = AlphabetRunner(options.get("gate"))
    if options.get("checking"):
        runner = PricedRunner(next_letter)
    runner.max_context = options.get("max_context")
    engine = Engine(runner, config, tokenizer=TOKENIZER, policy=BreakingPolicy(), log=outbox)
    if options.get("paused"):
        engine.pause()
    trace = options.get("trace_file")
    return InProcessClient(
        engine,
        outbox,
        Recording(
            TraceFile(Path(trace), options.get("run", 1)) if trace else None,
            KVPublisher(options["kv_events"], "kv") if "kv_events" in options else None,
        ),
    )


def main() -> None:
    options = json.loads(sys.argv[1])
    model = options.get("model")
    name = Path(model).name if model else "alphabet"
    settings = ServerSettings(model_name=name, **options.get("server", {}))
    TOKENIZER.gate = options.get("gate")
    two_processes = options.get("two_processes", TWO_PROCESSES)
    runs = itertools.count(1)

    def start(paused: bool) -> EngineClient:
        arguments = options | {"paused": paused, "run": next(runs)}
        if two_processes:
            factory = "tests.server.app_under_test:engine_with"
            read = tokenizer_of if model else lambda _ready: TOKENIZER
            return launch(factory, {"options": arguments}, read)
        return engine_with(arguments)

    HttpProtocol.head_seconds = options.get("head_seconds", HttpProtocol.head_seconds)
    host = settings.host if settings.host == "0.0.0.0" else "127.0.0.1"  # a name may be invented
    listeners = [listen(host, options.get("port", 0))]
    try:
        run_server(
            start(bool(options.get("paused"))),
            settings,
            listeners,
            launch=start if two_processes else None,
            request_log=LogWriter(Path(options["request_log"]))
            if "request_log" in options
            else None,
            ready=lambda: print(f"Underglass serves {name} at {url_of(listeners[0])}", flush=True),
            until_stdin_closes=True,
        )
    except EngineDiedError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
