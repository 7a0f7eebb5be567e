"""Simulate Mooncake's request traces: this module starts an engine, so `mooncake.py` imports it late.

A trace has arrivals, lengths and shared prefixes, but it does not say what an engine did with them. The
log therefore comes from a simulation and says so: only the arrivals are recorded, and everything else
is inferred.

The simulated machine is small, and every length is divided by 32. One hash id of the trace stands for
512 tokens, so it becomes one KV block of 16 tokens. For another machine, use
`engine.simulation.mooncake` and `simulate`.
"""

from collections.abc import Sequence

from engine.core.config import EngineConfig
from engine.core.log import Event
from engine.simulation.cost_runner import Cost
from engine.simulation.mooncake import BLOCK, MooncakeError, MooncakeRequest, parse
from engine.simulation.mooncake import workload_from_mooncake as workload_from
from engine.simulation.simulate import simulate
from engine.simulation.unknown_tokens import with_unknown_tokens
from engine.simulation.workload import Arrival, Workload
from visualizer.sources.mooncake import FACTS
from visualizer.sources.reader import SourceError, Translator

BLOCK_SIZE = 16
SHRINK = BLOCK // BLOCK_SIZE
MAX_REQUESTS = 200  # simulating them takes about a second
MAX_TOKENS = 500_000  # of all requests, after division: a long output takes a step for each token
TOKEN_BUDGET, MAX_BATCH_SIZE, MAX_KV_TOKENS = 512, 16, 8192
COST = Cost(base_ms=20, per_token_ms=0.5)


class MooncakeTranslator(Translator):
    """Collects the first requests of a trace, and simulates them when the trace has ended."""

    def __init__(self) -> None:
        self._requests: list[MooncakeRequest] = []
        self._lines = 0
        self._tokens = 0  # of all lines, after division

    def feed(self, message: bytes) -> Sequence[Event]:
        """Collect a request and return no events. Raises SourceError if the line is not a request."""
        try:
            request = parse(message)
        except MooncakeError as error:
            raise SourceError(str(error)) from error
        if self._requests and request.timestamp < self._requests[-1].timestamp:
            raise SourceError(
                f"timestamp must be at least {self._requests[-1].timestamp:g}, the timestamp of "
                f"an earlier line, got {request.timestamp:g}"
            )
        self._tokens += (request.input_length + request.output_length) // SHRINK
        fits = self._lines < MAX_REQUESTS and self._tokens <= MAX_TOKENS
        if fits or not self._requests:
            self._requests.append(request)
        self._lines += 1
        return []

    def end(self) -> Sequence[Event]:
        """Return the log of the simulation."""
        workload = workload_from(self._requests, shrink=SHRINK)
        log = simulate(workload, _config(workload), cost=COST)
        part = f"the first {len(self._requests):,} of " if self._lines > len(self._requests) else ""
        source = {
            "engine": f"simulation of {part}{self._lines:,} requests, lengths / {SHRINK}",
            "recorder": "Mooncake",
            "facts": FACTS,
        }
        return list(with_unknown_tokens(log, source))


def _config(workload: Workload) -> EngineConfig:
    """Return vLLM's settings, with memory for the longest request."""
    longest = max(
        len(one.prompt) + one.params.max_tokens
        for one in workload.inputs
        if isinstance(one, Arrival)
    )
    return EngineConfig.like(
        "vllm",
        token_budget=TOKEN_BUDGET,
        max_batch_size=MAX_BATCH_SIZE,
        max_kv_tokens=max(MAX_KV_TOKENS, longest + BLOCK_SIZE),
        block_size=BLOCK_SIZE,
    )
