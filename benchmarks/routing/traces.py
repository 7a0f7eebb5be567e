"""Workloads for routers, in the format of Mooncake's traces, for any number of replicas.

Each function returns requests of which parts repeat. A hash id stands for 512 tokens here and for 16
after `workload`, which shrinks everything by 32 as in `docs/capacity.md`; the lengths below are those
after it. Requests and what they share grow with the number of replicas, so the load of one
replica and its share of the memory stay the same.
"""

import random
from collections.abc import Callable
from itertools import count

from engine.simulation.mooncake import BLOCK, MooncakeRequest, workload_from_mooncake
from engine.simulation.workload import Workload

SHRINK = 32
SIZE = BLOCK // SHRINK  # tokens in a block


Range = tuple[int, int]


class Trace:
    """Requests, and the blocks of their prompts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._ids = count()
        self._requests: list[MooncakeRequest] = []

    def text(self, tokens: int) -> list[int]:
        """Return the ids of a new text, whole blocks."""
        return [next(self._ids) for _ in range(tokens // SIZE)]

    def ask(self, at_ms: float, text: list[int], own: int, output: int) -> None:
        """Add a request: a text that others may begin with, and `own` tokens."""
        tokens = len(text) * SIZE + own
        ids = text + [next(self._ids) for _ in range(-(-own // SIZE))]
        self._requests.append(MooncakeRequest(at_ms, tokens * SHRINK, output * SHRINK, ids))

    def times(self, number: int, per_second: float) -> list[float]:
        """Return the times of independent clients, in milliseconds."""
        at, times = 0.0, list[float]()
        for _ in range(number):
            at += self.rng.expovariate(per_second) * 1000
            times.append(at)
        return times

    def workload(self) -> Workload:
        """Return the requests in order of time."""
        self._requests.sort(key=lambda one: one.timestamp)
        return workload_from_mooncake(self._requests, shrink=SHRINK)


def chats(trace: Trace, replicas: int) -> None:
    """Ten short conversations per replica, in a hurry: the memory holds all of them."""
    _converse(trace, 10 * replicas, first=(32, 96), asks=(4, 24), pause_ms=400)


def conversations(trace: Trace, replicas: int) -> None:
    """Ten long ones per replica: the memory holds a third of them."""
    _converse(trace, 10 * replicas, first=(64, 192), asks=(8, 64), pause_ms=4000)


def _converse(trace: Trace, people: int, first: Range, asks: Range, pause_ms: float) -> None:
    """Add conversations of ten turns: each repeats all that was said, and its answer."""
    rng = trace.rng
    for _ in range(people):
        at, said = rng.uniform(0, 4 * pause_ms), trace.text(rng.randint(*first))
        for _ in range(10):
            own, output = rng.randint(*asks), rng.randint(8, 40)
            trace.ask(at, said, own, output)
            said = said + trace.text(own + output)
            at += (0.25 + rng.expovariate(1)) * pause_ms + 10 * output


def system_prompts(trace: Trace, replicas: int) -> None:
    """Eight applications for two replicas, each with instructions of its own, and short questions."""
    rng = trace.rng
    prompts = [trace.text(rng.randint(400, 1200)) for _ in range(4 * replicas)]
    for at in trace.times(160 * replicas, 4 * replicas):
        trace.ask(at, rng.choice(prompts), rng.randint(16, 96), rng.randint(8, 48))


def bursts(trace: Trace, replicas: int) -> None:
    """Classes: twelve requests at once about one text, which comes back now and then."""
    rng = trace.rng
    texts = [trace.text(rng.randint(300, 900)) for _ in range(5 * replicas)]
    for number in range(16 * replicas):
        for _ in range(12):
            at = number * 3000 / replicas + rng.uniform(0, 250)
            trace.ask(
                at,
                texts[rng.randrange(len(texts))]
                if rng.random() < 0.1
                else texts[number % len(texts)],
                rng.randint(8, 48),
                rng.randint(8, 32),
            )


def long_documents(trace: Trace, replicas: int) -> None:
    """Four questions about each document of a good 1,000 tokens, among short prompts without one."""
    rng = trace.rng
    for at in trace.times(20 * replicas, 0.35 * replicas):
        document, asked = trace.text(rng.randint(900, 1500)), at
        for _ in range(4):
            trace.ask(asked, document, rng.randint(8, 48), rng.randint(16, 64))
            asked += 300 + rng.expovariate(1 / 700)
    for at in trace.times(120 * replicas, 2 * replicas):
        trace.ask(at, [], rng.randint(16, 96), rng.randint(16, 64))


def tenants(trace: Trace, replicas: int) -> None:
    """Fifteen tenants per replica, of which the largest sends two fifths of all requests."""
    rng = trace.rng
    texts = [trace.text(rng.randint(300, 600)) for _ in range(15 * replicas)]
    weights = [0.0] + [1 / rank for rank in range(1, len(texts))]
    weights[0] = sum(weights) * 2 / 3
    for at in trace.times(200 * replicas, 6 * replicas):
        (text,) = rng.choices(texts, weights)
        trace.ask(at, text, rng.randint(16, 64), rng.randint(8, 32))


def one_prompt(trace: Trace, replicas: int) -> None:
    """One application, whose instructions begin nearly all prompts, and long answers."""
    rng = trace.rng
    instructions = trace.text(1000)
    for at in trace.times(150 * replicas, 5 * replicas):
        text = instructions if rng.random() < 0.9 else []
        trace.ask(at, text, rng.randint(16, 96), rng.randint(60, 240))


def six_prefixes(trace: Trace, replicas: int) -> None:
    """Guides of 1,000 tokens, three per replica, and a question of 30 tokens about one of them."""
    rng = trace.rng
    guides = [trace.text(992) for _ in range(3 * replicas)]
    asked = rng.sample(guides * 60, 60 * len(guides))
    for at, guide in zip(trace.times(len(asked), 4 * replicas), asked, strict=True):
        trace.ask(at, guide, 38, 16)


def nothing_shared(trace: Trace, replicas: int) -> None:
    """Prompts that share nothing: many are short, and a few are long."""
    rng = trace.rng
    for at in trace.times(160 * replicas, 5 * replicas):
        prompt = min(2000, max(8, round(120 * rng.lognormvariate(0, 1))))
        trace.ask(at, [], prompt, rng.randint(8, 48))


WORKLOADS: dict[str, Callable[[Trace, int], None]] = {
    one.__name__: one
    for one in (
        chats,
        conversations,
        system_prompts,
        bursts,
        long_documents,
        tenants,
        one_prompt,
        six_prefixes,
        nothing_shared,
    )
}


def workload(name: str, replicas: int, seed: int) -> Workload:
    """Return a workload by name."""
    trace = Trace(seed)
    WORKLOADS[name](trace, replicas)
    return trace.workload()
