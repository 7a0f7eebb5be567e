"""A server runs for weeks: a finished request leaves no objects behind.

Nothing here knows the names of the engine's own dictionaries. All objects reachable from the engine
are counted after a few hundred requests and after several times as many; the count must not have grown.
"""

import gc
import random
from types import FunctionType, ModuleType

import pytest

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.log.vocabulary import Event
from engine.core.request import Request
from engine.core.scheduling.policies import POLICIES
from tests.engine.workloads import Workload, finish, make_engine

ROUND = 150  # requests
LATER = 4  # rounds
# A heap keeps up to 64 stale entries before it is cleaned; a leak would show hundreds of times.
SLACK = 250


class NothingKept(EventLog):
    """A log that keeps no events."""

    def append(self, event: Event) -> None:
        """Forget the event."""


def serve_round(engine: Engine, rng: random.Random) -> None:
    """Serve requests with shared prefixes, samples, tools, drafts, aborts, failures, preemptions."""
    stems = [[97 + rng.randrange(3) for _ in range(20)] for _ in range(3)]
    runner = engine.runner
    for _ in range(ROUND):
        prompt = [*rng.choice(stems)[: rng.randint(1, 20)], 97 + rng.randrange(3)]
        params = SamplingParams(
            max_tokens=rng.randint(1, 20),
            n=rng.choice((1, 1, 2, 3)),
            temperature=1.0,
            stop=rng.choice(((), ("ab",))),
        )
        client = f"client {rng.randrange(10)}"
        request = engine.submit(prompt, params, label=client, priority=rng.randrange(3))
        if rng.random() < 0.3:
            for _ in range(rng.randrange(6)):
                engine.step()
            engine.abort(request.id + rng.randrange(params.n))
        if rng.random() < 0.05:
            runner.failures = {runner.passes + 1}
    finish(engine)
    engine.clear_prefix_cache()


def reachable(root: object) -> tuple[int, int]:
    """Count all objects reachable from `root`, and the requests among them.

    Modules, classes and functions are skipped: they refer to everything and belong to no request.
    """
    seen, queue, requests = {id(root)}, [root], 0
    count = 0
    while queue:
        one = queue.pop()
        count += 1
        requests += isinstance(one, Request)
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(other, ModuleType | type | FunctionType):
                seen.add(id(other))
                queue.append(other)
    return count, requests


def all_requests() -> list[Request]:
    # `isinstance` would read `__class__` of objects of other libraries: a dead weak proxy raises then.
    return [one for one in gc.get_objects() if type(one) is Request]


@pytest.mark.parametrize(("policy", "drafts"), [*((policy, 0) for policy in POLICIES), ("lpm", 3)])
def test_what_a_request_brought_leaves_with_it(policy: str, drafts: int) -> None:
    config = EngineConfig(
        policy=policy, token_budget=24, max_batch_size=6, max_kv_tokens=96, block_size=4
    )
    earlier = all_requests()
    engine = make_engine(Workload(config, [], draft_length=drafts), NothingKept())
    rng = random.Random(5)
    serve_round(engine, rng)
    before, _ = reachable(engine)
    for _ in range(LATER):
        serve_round(engine, rng)
    after, requests = reachable(engine)
    assert after < before + SLACK
    assert requests == 0
    gc.collect()
    assert [one for one in all_requests() if one not in earlier] == []
    assert sorted(engine.pool.free) == list(range(config.num_blocks))
    assert set(engine.tree.nodes) == {0}
