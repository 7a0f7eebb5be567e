"""Custom parts: the cells of docs/extending.md run, and errors name the part."""

import re
from functools import cache, partial
from pathlib import Path

import pytest

from engine import CostRunner, Engine, EngineConfig, SamplingParams
from engine.core.cache.block_pool import BlockPool
from engine.core.cache.eviction import EvictionOrder
from engine.core.part_errors import DrafterError, EvictionError, PartError, PolicyError, PoolError
from engine.core.request import Request
from engine.core.scheduling.policies import Policy
from engine.simulation.checking_runner import CheckingRunner
from tests.engine.invariants import check, check_after_step, checked
from tests.engine.workloads import finish, random_workload
from tests.facts import assert_names, raises_naming
from visualizer import read

DOC = Path(__file__).parents[2] / "docs" / "extending.md"
CELLS = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)


checked_engine = partial(checked, Engine)
checked_engine.load = partial(checked, Engine.load)


@pytest.fixture(scope="module")
def cells() -> dict[str, tuple[Engine, str, dict]]:
    """Execute every cell in one namespace, as a notebook does: class -> (engine, output, cell)."""
    names: dict = {}
    exec(CELLS[0], names)
    names["Engine"] = checked_engine
    done = {}
    for cell in CELLS[1:]:
        printed: list[str] = []
        names["print"] = lambda *values, into=printed: into.append(" ".join(map(str, values)))
        exec(cell, names)
        check_after_step(names["engine"])
        [name] = re.findall(r"^(?:class|def) (\w+)", cell, re.MULTILINE)
        done[name] = (names["engine"], "\n".join(printed), cell)
    return done


@pytest.mark.parametrize(
    ("name", "part", "output"),
    [
        ("LongestFirst", "policy", "[3, 2, 1]"),
        ("PreemptOldest", "policy", "1"),
        ("OneAtATime", "policy", "[1, 2, 3]"),
        ("OneForEachLabel", "policy", "[1, 7, 1]"),
        ("Accounts", "policy", "{'Ada': 11, 'Bo': 18}"),
        ("LargestFirst", "eviction", "[2]"),
        ("LongestFree", "pool", "[[7, 6], [5, 4]]"),
        ("LongHitsOnly", "tree", "[0, 0, 16]"),
        ("AsBefore", "drafter", "6"),
        ("Commas", "tool", "one,two,"),
        ("Distrustful", "verifier", "0"),
        ("Counting", "attention", "15"),
        ("one_of_the_two_likeliest", "logits_to_probs", "True"),
    ],
)
def test_a_part_from_a_cell_runs_changes_the_result_as_it_says_and_is_named(
    cells, name: str, part: str, output: str
) -> None:
    engine, printed, cell = cells[name]
    assert engine.log[0].classes[part] == name
    assert printed == output
    assert f"# {output}" in cell, "the page says something else than what is printed"
    assert name != "Distrustful" or read(engine.log).steps.drafted_tokens.sum() > 0


@pytest.mark.parametrize("part", ["attention", "verifier", "logits_to_probs"])
def test_a_part_of_a_model_is_refused_where_there_is_no_model(part: str) -> None:
    with raises_naming(ValueError, "CostRunner", part):
        Engine(CostRunner(10, 0.25), **{part: object()})


@pytest.mark.parametrize("name", ["FetchesWhileItComputes", "SameBeginning"])
def test_a_simulation_from_a_cell_gives_what_the_page_says(cells, name: str) -> None:
    _, printed, cell = cells[name]
    assert f"# {printed}" in cell


# Mistakes


class GoneWrong:
    """Mixin: the method named `broken` misbehaves once, at its `after`-th call."""

    broken, after, answer, engine = "", 0, None, None

    def _maybe(self, method: str, *args):
        if method == self.broken and not (self.engine and self.engine.log.checking):
            self.after -= 1
            if self.after == -1:
                return self.answer()
        return getattr(super(), method)(*args)  # of the class that `can_fail` mixes it with


def fails(*_):
    raise ZeroDivisionError("of all things")


class Letters:
    def propose(self, request):
        return [97, 98]


def can_fail(name: str, base: type, *methods: str) -> type:
    """Return a subclass in which each of these methods can misbehave."""

    def failing(method: str):
        def call(self, *args):
            return self._maybe(method, *args)

        call.__name__ = method
        return call

    return type(name, (GoneWrong, base), {method: failing(method) for method in methods})


HOOKS = ("admit", "victim", "defer", "group", "on_queued", "on_served")
BadPolicy = can_fail("BadPolicy", Policy, "key", *HOOKS)
BadOrder = can_fail("BadOrder", EvictionOrder, "key")
BadDrafter = can_fail("BadDrafter", Letters, "propose")


def bad(kind: type, method: str, answer, after: int = 0):
    part = kind()
    part.broken, part.answer, part.after = method, answer, after
    return part


def crowded_engine(cache: str = "radix", **parts) -> tuple[Engine, list]:
    """Four requests, two of them samples of one prompt, in a memory that is too small for them:
    preemptions, evictions, copies and drafts all happen. Every event is checked."""
    config = EngineConfig(
        token_budget=24, max_batch_size=4, max_kv_tokens=48, block_size=4, prefix_cache=cache
    )
    runner = CheckingRunner(lambda tokens, seed: 97 + hash((tuple(tokens[-3:]), seed)) % 3)
    engine = checked_engine(runner, config, **parts)
    prompts = [[97, 98, 99] * 3, [98] * 7, [97, 98, 99] * 4 + [98, 98], [99] * 6]
    params = SamplingParams(max_tokens=14, ignore_eos=True)
    twice = SamplingParams(max_tokens=14, ignore_eos=True, n=2)
    return engine, [(prompt, twice if i == 0 else params) for i, prompt in enumerate(prompts)]


def outputs(engine: Engine, waiting: list, error: type[Exception]) -> tuple[dict, list[str]]:
    """Return all outputs at the end and the errors on the way; after each error the engine goes on."""
    said, errors, asked = {}, [], list(waiting)
    while asked or engine.has_work():
        try:
            if asked:
                engine.submit(*asked[0])
                asked.pop(0)
            for request in engine.step().finished:
                said[request.id] = request.output_ids
        except error as caught:
            errors.append(str(caught))
            assert len(errors) < 3
        check_after_step(engine)
    try:
        engine.clear_prefix_cache()
    except error as caught:
        errors.append(str(caught))
        engine.clear_prefix_cache()
    assert engine.log.state().core() == engine.snapshot()
    assert len(engine.pool.free) == engine.config.num_blocks
    return said, errors


NOT_KEYS = {
    "a number": (lambda: 3, "must return a tuple of numbers, got 3"),
    "none": (lambda: None, None),
    "words": (lambda: ("a",), ("a",)),
    "nan": (lambda: (float("nan"),), (float("nan"),)),
    "an exception": (fails, "ZeroDivisionError"),
}
NOT_DRAFTS = {
    "none": (lambda: None, None),
    "a tuple": (lambda: (97,), (97,)),
    "too large": (lambda: [97, 10_000], 10_000),
    "negative": (lambda: [-1], -1),
    "no number": (lambda: ["a"], "'a'"),
    "an exception": (fails, "ZeroDivisionError"),
}
STRANGER = Request(99, [1], [""], SamplingParams())  # does not run
MISTAKES = [
    *[("policy", BadPolicy, "key", PolicyError, one) for one in NOT_KEYS.values()],
    *[("policy", BadPolicy, method, PolicyError, NOT_KEYS["an exception"]) for method in HOOKS],
    *[("policy", BadPolicy, method, PolicyError, (lambda: 7, 7)) for method in ("admit", "victim")],
    ("policy", BadPolicy, "victim", PolicyError, (lambda: STRANGER, 99)),
    *[("eviction", BadOrder, "key", EvictionError, one) for one in NOT_KEYS.values()],
    *[("drafter", BadDrafter, "propose", DrafterError, one) for one in NOT_DRAFTS.values()],
]


@cache
def answers_without_mistakes() -> dict[int, list[int]]:
    said, errors = outputs(*crowded_engine(), PartError)
    assert not errors
    return said


@pytest.mark.parametrize(
    ("part", "kind", "method", "error", "mistake"),
    MISTAKES,
    ids=[f"{kind.__name__}.{method} {given}" for _, kind, method, _, (_, given) in MISTAKES],
)
def test_a_mistake_is_named_and_the_engine_goes_on_as_if_it_had_not_been(
    part: str, kind: type, method: str, error: type, mistake: tuple
) -> None:
    """Whenever a part fails, all requests get the same output and the log stays true."""
    answer, given = mistake
    met = 0
    for after in (0, 1, 2, 5, 11):
        wrong = bad(kind, method, answer, after)
        cache = "hash" if after % 2 and part != "eviction" else "radix"
        engine, requests = crowded_engine(cache, **{part: wrong})
        wrong.engine = engine
        said, errors = outputs(engine, requests, error)
        assert said == answers_without_mistakes()
        assert len(errors) == (wrong.after < 0)
        for one in errors:
            assert_names(one, f"{kind.__name__}.{method}", given)
        met += len(errors)
    assert met


def uncounted(pool: BlockPool, count: int) -> list[int]:
    blocks, pool.free = pool.free[-count:], pool.free[:-count]
    return blocks


allocate = BlockPool.allocate


@pytest.mark.parametrize(
    ("method", "mistake", "fact"),
    [
        ("allocate", lambda pool, count: allocate(pool, count)[:1] * count, 2),
        ("allocate", lambda pool, count: [0] * count, 0),
        ("allocate", lambda pool, count: allocate(pool, count)[1:], 4),
        ("allocate", lambda pool, count: pool.free[-count:], "free"),
        ("allocate", uncounted, "refs"),
        ("allocate", fails, "ZeroDivisionError"),
        ("writable", lambda pool, block: block, 2),
        ("writable", lambda pool, block: pool.allocate(1)[0], 2),
        ("writable", fails, "ZeroDivisionError"),
    ],
)
def test_a_mistake_of_a_pool_is_named_and_the_engine_says_that_it_is_over(
    method: str, mistake, fact: object
) -> None:
    class BadPool(BlockPool):
        def allocate(self, count: int) -> list[int]:
            right = method != "allocate" or len(self.free) > self.num_blocks - 2
            return allocate(self, count) if right else mistake(self, count)

        def writable(self, block: int) -> int:
            return mistake(self, block)

    engine, requests = crowded_engine(pool=BadPool(12))
    for one in requests[1:3] if method == "allocate" else requests[:1]:
        engine.submit(*one)
    for error in (PoolError, RuntimeError):
        with raises_naming(error, f"BadPool.{method}", fact):
            finish(engine)


class Rotating(BlockPool):
    """Allocate the block that has been free the longest."""

    def allocate(self, count: int) -> list[int]:
        blocks, self.free = self.free[:count], self.free[count:]
        for block in blocks:
            self.refs[block] = 1
        return blocks


class LargestFirst(EvictionOrder):
    def key(self, node) -> tuple[float, ...]:
        return (-len(node.blocks), node.last)


def test_no_invariant_breaks_with_parts_of_ones_own(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 40):
        workload = random_workload(seed)
        check(workload, pool=Rotating(workload.config.num_blocks), eviction=LargestFirst())
