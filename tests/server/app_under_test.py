"""A server process with a fake model: it recites the alphabet, and fails on request.

Started by the tests with one JSON argument. The request's label decides what the engine does, so that
each test says in its requests what should go wrong:

    fail-after-N   the forward pass raises once the request has N output tokens
    break          the engine's own loop raises
    gate           the forward pass does not return until a test writes to the FIFO

A prompt that begins with "gate" is not tokenized until a test writes to the FIFO, either.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.cache.radix_tree import RadixTree
from engine.config import EngineConfig
from engine.engine import Engine
from engine.runner import Row, Sampled
from engine.scheduling.policies import Policy
from engine.scheduling.request import Request, TokenScore
from engine.text.byte_tokenizer import ByteTokenizer
from server.cli.serving import listen, run_server, url_of
from server.core.event_log import Outbox, TraceFile
from server.core.settings import ServerSettings
from server.http.protocol import HttpProtocol
from server.http.request_log import LogWriter


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


class BreakingPolicy(Policy):
    """First come, first served, unless it is asked about a request labelled "break"."""

    keys_change = True

    def key(self, request: Request, tree: RadixTree) -> tuple[float, ...]:
        if request.label == "break":
            raise RuntimeError("told to break")
        return super().key(request, tree)


def main() -> None:
    options = json.loads(sys.argv[1])
    settings = ServerSettings(model_name="alphabet", **options.get("server", {}))
    outbox = Outbox(texts=settings.trace_text == "on")
    runner = AlphabetRunner(options.get("gate"))
    runner.max_context = options.get("max_context")
    TOKENIZER.gate = options.get("gate")
    config = EngineConfig(**options.get("engine", {}))
    engine = Engine(runner, config, tokenizer=TOKENIZER, policy=BreakingPolicy(), log=outbox)
    if options.get("paused"):
        engine.pause()
    HttpProtocol.head_seconds = options.get("head_seconds", HttpProtocol.head_seconds)
    host = settings.host if settings.host == "0.0.0.0" else "127.0.0.1"  # a name may be invented
    listener = listen(host, options.get("port", 0))
    trace = options.get("trace_file")
    run_server(
        engine,
        outbox,
        settings,
        listener,
        trace_file=TraceFile(Path(trace)) if trace else None,
        request_log=LogWriter(Path(options["request_log"])) if "request_log" in options else None,
        ready=lambda: print(f"Underglass serves alphabet at {url_of(listener)}", flush=True),
        until_stdin_closes=True,
    )


if __name__ == "__main__":
    main()
