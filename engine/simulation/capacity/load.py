"""Requests whose arrival rate can be changed, and nothing else.

    load = Load(prompt=uniform(32, 160), output=uniform(16, 48))
    load.at(8)          # a workload with 8 requests per second

The random numbers of a request depend on the seed and its index, so two rates get the same requests in
the same order, only closer together (common random numbers, as in `traffic.py`). What differs between
two points of a curve is then the rate, not the luck.

The gaps are those of `vllm bench serve`: a gamma distribution whose shape is the `burstiness`. With 1
it is a Poisson process; less than 1 makes bursts, more makes the arrivals regular. Recorded arrivals
keep their pattern and are sped up or slowed down. As there, the last arrival is moved to the end of the
run, so that the offered rate is exactly the one that was asked for.

Source: vllm/benchmarks/serve.py, get_request, in vLLM 0.32.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from engine.core.sampling_params import SamplingParams
from engine.simulation.workload import Answer, Arrival, Input, Length, Workload, letters, uniform

PROMPT, OUTPUT = uniform(32, 160), uniform(16, 48)


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked, and how irregularly. Raises ValueError for a value out of range.

    requests       at least so many in the run of each rate
    seconds        each run lasts at least so long, because a short burst shows no queue
    prompt         the length of a prompt without the shared tokens
    output         the length of an answer
    shared_tokens  the length of the prompts' common prefix
    burstiness     1: a Poisson process
    recorded       requests with their own arrivals and lengths, in place of all of these. A run has
                   no more requests than there are
    """

    prompt: Length = PROMPT
    output: Length = OUTPUT
    requests: int = 200
    seconds: float = 10.0
    shared_tokens: int = 0
    burstiness: float = 1.0
    recorded: Workload | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("requests", 1), ("seconds", 0), ("shared_tokens", 0)):
            if not least <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)!r}")
        if not 0 < self.burstiness < float("inf"):
            raise ValueError(f"burstiness must be more than 0, got {self.burstiness!r}")
        if self.recorded is not None and not self._recorded():
            raise ValueError("recorded must have a request, but the workload has none")

    def at(self, rate: float, requests: int | None = None) -> Workload:
        """Return the first requests at so many per second. `requests` sets their number."""
        if not 0 < rate < float("inf"):
            raise ValueError(f"rate must be more than 0 requests per second, got {rate!r}")
        count = max(self.requests, ceil(rate * self.seconds)) if requests is None else requests
        if self.recorded is not None:
            arrivals = self._recorded()[:count]
            times = [one.at_ms for one in arrivals]
            times = [at - times[0] for at in times]
        else:
            arrivals, times = map(list, zip(*self._drawn(count), strict=True))
        # The first request comes at 0, and the gap after the last one is a mean gap.
        end = 1000 * (len(times) - 1) / rate
        scale = end / times[-1] if times[-1] else 0.0
        inputs: list[Input] = [
            replace(one, step=None, at_ms=at * scale)
            for one, at in zip(arrivals, times, strict=True)
        ]
        return Workload(inputs, self.recorded.tokenizer if self.recorded is not None else None)

    def _recorded(self) -> list[Arrival]:
        assert self.recorded is not None
        return [one for one in self.recorded.inputs if isinstance(one, Arrival)]

    def _drawn(self, count: int) -> Iterator[tuple[Arrival, float]]:
        """Yield each request with its time, in mean gaps."""
        shared = letters(random.Random(f"{self.seed} shared"), self.shared_tokens)
        at = 0.0
        for index in range(count):
            rng = random.Random(f"{self.seed} {index}")
            gap = rng.gammavariate(self.burstiness, 1 / self.burstiness)
            at += gap if index else 0.0
            length = self.output(rng)
            yield (
                Arrival(
                    prompt=shared + letters(rng, self.prompt(rng)),
                    params=SamplingParams(max_tokens=length),
                    answers={0: Answer(length)},
                ),
                at,
            )
