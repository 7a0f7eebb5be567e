"""More samples than the batch has seats: the rest are queued as requests of their own."""

import pytest

from engine import Engine, EngineConfig, SamplingParams
from engine.core.request import Request
from engine.core.sampling_params import split_samples
from engine.core.scheduling.policies import Fcfs
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.invariants import check_after_step
from tests.engine.workloads import TOKENIZER, finish, next_token, reference

PROMPT = list(b"abcabcabcabc")


def make_engine(**config: object) -> Engine:
    settings = {"max_batch_size": 3, "max_kv_tokens": 256, "block_size": 4} | config
    return Engine(CheckingRunner(next_token), EngineConfig(**settings), tokenizer=TOKENIZER)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_kv_tokens": 48, "token_budget": 5},
        {"prefix_cache": "hash"},
        {"prefix_cache": "off"},
        {"preemption": False},
        {"batching": "static"},
        {"async_scheduling": True},
    ],
    ids=str,
)
def test_every_sample_is_its_own_and_complete(config: dict[str, object]) -> None:
    engine = make_engine(**config)
    seed = 7 if config else None
    params = SamplingParams(n=8, max_tokens=12, temperature=1.0, seed=seed)
    first = engine.submit(PROMPT, params)

    def check(engine: Engine) -> None:
        check_after_step(engine)
        assert len(engine.scheduler.running) <= 3

    seen = finish(engine, check)
    assert sorted(seen) == list(range(first.id, first.id + 8))
    for index, request in enumerate(seen[first.id + i] for i in range(8)):
        own = (first.id if seed is None else seed) + index
        assert request.output_ids == reference(PROMPT, request.params, own)[0]
    assert len({tuple(request.output_ids) for request in seen.values()}) > 4


def test_the_parts_of_a_request() -> None:
    params = SamplingParams(n=2, best_of=5, seed=10)
    parts = split_samples(params, 3)
    assert [(part.n, part.best_of, part.seed) for part in parts] == [
        (2, 3, 10),
        (1, 1, 13),
        (1, 1, 14),
    ]
    asked = SamplingParams(n=2, best_of=7, max_tokens=6, temperature=1.0, seed=3)
    done = make_engine().complete([PROMPT, PROMPT[:5]], asked, progress=False)
    assert len({tuple(one.token_ids) for one in done}) == 4


class _FailsAtThird(Fcfs):
    def on_queued(self, request: Request, waiting: object) -> None:
        if request.id == 5:  # the third part
            raise ValueError("no")


def test_a_policy_that_fails_on_a_part_leaves_nothing_behind() -> None:
    config = EngineConfig(max_batch_size=3)
    engine = Engine(CheckingRunner(next_token), config, tokenizer=TOKENIZER, policy=_FailsAtThird())
    with pytest.raises(Exception, match="no"):
        engine.submit(PROMPT, SamplingParams(n=6))
    assert not engine.requests
    assert not engine.has_work()
