"""Lesson 04's exercise: wrong admissions are refused helpfully, right ones run in the engine."""

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_04 import attempt, cases
from engine import Cost, EngineConfig, simulate
from engine.scheduling.policies import Fcfs
from engine.simulation.scenarios import scenario
from solutions.lesson_04 import admit as solution


def verdict(admit) -> Verdict:
    return judge(admit, cases(), attempt)


def blocks_of(tokens: int, size: int) -> int:
    return -(-tokens // size)


# Wrong


def passes_over(waiting, places, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        if slots > places or chunk == 0 or blocks_of(chunk, block_size) > free_blocks:
            continue
        places, budget_left = places - slots, budget_left - chunk
        free_blocks -= blocks_of(chunk, block_size)
        admitted.append(id_)
    return admitted


def wants_the_whole_prompt(waiting, places, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        if slots > places or tokens > budget_left or blocks_of(tokens, block_size) > free_blocks:
            break
        places, budget_left = places - slots, budget_left - tokens
        free_blocks -= blocks_of(tokens, block_size)
        admitted.append(id_)
    return admitted


def one_too_many(waiting, places, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        if places < 0 or chunk == 0 or blocks_of(chunk, block_size) > free_blocks:
            break
        places, budget_left = places - slots, budget_left - chunk
        free_blocks -= blocks_of(chunk, block_size)
        admitted.append(id_)
    return admitted


def one_place_for_all_samples(waiting, places, budget_left, free_blocks, block_size):
    return solution(
        [(i, tokens, 1) for i, tokens, _ in waiting], places, budget_left, free_blocks, block_size
    )


def forgets_memory(waiting, places, budget_left, free_blocks, block_size):
    return solution(waiting, places, budget_left, 10**9, block_size)


def memory_for_the_whole_prompt(waiting, places, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk, blocks = min(tokens, budget_left), blocks_of(tokens, block_size)
        if slots > places or chunk == 0 or blocks > free_blocks:
            break
        places, budget_left, free_blocks = places - slots, budget_left - chunk, free_blocks - blocks
        admitted.append(id_)
    return admitted


def ignores_the_budget(waiting, places, budget_left, free_blocks, block_size):
    return [] if not waiting else [waiting[0][0]] if places >= waiting[0][2] else []


def empties_the_queue(waiting, places, budget_left, free_blocks, block_size):
    admitted = solution(list(waiting), places, budget_left, free_blocks, block_size)
    while waiting:
        waiting.pop()
    return admitted


def raises(waiting, places, budget_left, free_blocks, block_size):
    return [waiting[0][0]]


def never_ends(waiting, places, budget_left, free_blocks, block_size):
    admitted = []
    while places:
        pass
    return admitted


def returns_a_count(waiting, places, budget_left, free_blocks, block_size):
    return len(solution(waiting, places, budget_left, free_blocks, block_size))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            passes_over,
            [
                "Queue: A with 5 tokens and B with 1 token. Left in this step: 3 places, 32 tokens "
                "and 1 free block of 4 slots.",
                "You admitted B.",
                "nobody overtakes the head of the queue",
                "Follow A if small requests keep arriving.",
            ],
        ),
        (
            wants_the_whole_prompt,
            ["as many join as fit", "A has 4 tokens to compute: a chunk of them fits"],
        ),
        (
            one_too_many,
            [
                "no more places are given away than there are",
                "0 places left, and A is one too many",
            ],
        ),
        (one_place_for_all_samples, ["A needs 2 places: one for each sample."]),
        (forgets_memory, ["no more blocks are given away than are free", "0 were free"]),
        (
            memory_for_the_whole_prompt,
            ["You admitted nobody, and left A waiting.", "a chunk of them fits"],
        ),
        (ignores_the_budget, ["whoever joins computes at least one token", "the budget was spent"]),
        (empties_the_queue, ["You changed waiting: it is [] now.", "stays as it was"]),
        (raises, ["raises() raised IndexError", "`return [waiting[0][0]]`"]),
        (never_ends, ["still running after 100,000 lines", "in line", "What there changes"]),
        (returns_a_count, ["You returned 0.", "the answer is a list of ids"]),
    ],
)
def test_a_wrong_admission_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


def as_a_recursion(waiting, places, budget_left, free_blocks, block_size):
    if not waiting:
        return []
    (id_, tokens, slots), *rest = waiting
    chunk = min(tokens, budget_left)
    blocks = blocks_of(chunk, block_size)
    if slots > places or not chunk or blocks > free_blocks:
        return []
    left = (places - slots, budget_left - chunk, free_blocks - blocks)
    return [id_, *as_a_recursion(rest, *left, block_size)]


def as_a_search_for_the_longest_beginning(waiting, places, budget_left, free_blocks, block_size):
    for length in range(len(waiting), -1, -1):
        budget, blocks, idle = budget_left, 0, False
        for _, tokens, _ in waiting[:length]:
            chunk = min(tokens, budget)
            idle = idle or chunk == 0
            budget, blocks = budget - chunk, blocks + blocks_of(chunk, block_size)
        slots = sum(slots for _, _, slots in waiting[:length])
        if not idle and slots <= places and blocks <= free_blocks:
            return tuple(id_ for id_, _, _ in waiting[:length])
    return []


@pytest.mark.parametrize("right", [solution, as_a_recursion, as_a_search_for_the_longest_beginning])
def test_every_right_admission_is_accepted_and_runs_in_the_engine(right, capsys) -> None:
    policy = check.lesson_04(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    table = scenario("continuous_batching")
    log = simulate(table.workload, table.config, cost=Cost(10, 0.25), policy=policy)
    assert log[0].classes["policy"] == "YourAdmission"
    # The same decisions as the engine's own, step by step.
    own = table.run()
    assert log.requests.drop(columns="policy_key").equals(own.requests.drop(columns="policy_key"))
    assert len(log.steps) == 40


def test_the_engine_asks_the_learners_part_and_not_its_own() -> None:
    """One at a time is a rule that no check accepts: it shows whose word counts."""
    from checks.lesson_04 import YourAdmission

    config = EngineConfig(max_batch_size=4, prefix_cache=False)
    policy = YourAdmission(lambda waiting, *room: [waiting[0][0]])
    log = simulate(
        scenario("continuous_batching").workload, config, cost=Cost(10, 0.25), policy=policy
    )
    assert log.requests.admitted_step.tolist()[:4] == [1, 2, 3, 4]


def stub(waiting, places, budget_left, free_blocks, block_size):
    """Who joins in this step."""
    ...


def later(waiting, places, budget_left, free_blocks, block_size):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
    untouched, capsys
) -> None:
    policy = check.lesson_04(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert isinstance(policy, Fcfs)


def test_cases_come_smallest_first() -> None:
    lengths = [len(queue.waiting) for queue in cases()]
    assert lengths == sorted(lengths)
