"""Lesson 09's exercise: wrong victims are refused helpfully, right ones are used by the engine."""

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_09 import Crowd, Shortage, YourVictims, attempt, cases
from engine import Cost, simulate
from engine.events.vocabulary import Preempted
from engine.scheduling.policies import Priority
from engine.simulation.scenarios import scenario
from solutions.lesson_09 import victim as solution


def verdict(victim) -> Verdict:
    return judge(victim, cases(), attempt)


# Wrong


def whoever_needs_it(running, needed_by):
    return needed_by


def the_most_blocks(running, needed_by):
    return max(running, key=lambda row: (row[1], row[4]))[0]


def the_most_blocks_of_all(running, needed_by):
    return max(running, key=lambda row: row[4])[0]


def the_larger_number_is_urgent(running, needed_by):
    return min(running, key=lambda row: (row[1], -row[2]))[0]


def the_last_in_the_list(running, needed_by):
    return running[-1][0]


def the_newest_of_all(running, needed_by):
    return max(running, key=lambda row: row[2])[0]


def the_last_in_the_list_of_the_least_urgent(running, needed_by):
    least = max(row[1] for row in running)
    return [row for row in running if row[1] == least][-1][0]


def the_oldest_of_the_least_urgent(running, needed_by):
    return max(running, key=lambda row: (row[1], -row[2]))[0]


def the_least_work_to_lose(running, needed_by):
    return max(running, key=lambda row: (row[1], -row[3]))[0]


def anybody_else(running, needed_by):
    others = [row for row in running if row[0] != needed_by]
    return max(others, key=lambda row: (row[1], row[2]))[0]


def the_row(running, needed_by):
    return max(running, key=lambda row: (row[1], row[2]))


def sorts_in_place(running, needed_by):
    running.sort(key=lambda row: (row[1], row[2]))
    return running[-1][0]


def for_letters_only(running, needed_by):
    return max(running, key=lambda row: (row[1], row[2]))[0].upper()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            whoever_needs_it,
            ["the least urgent give way", "has stopped for somebody in less of a hurry"],
        ),
        (
            the_most_blocks,
            [
                "You stopped A, the oldest of those with priority",
                "though B was running as well",
                "A came 1st, B 2nd. What made your rule prefer the first of them?",
            ],
        ),
        (the_most_blocks_of_all, ["the least urgent give way"]),
        (
            the_larger_number_is_urgent,
            [
                "You stopped A, with priority 0, and B, with priority 5, goes on.",
                "Priority 0 is the most urgent here",
            ],
        ),
        (the_last_in_the_list, ["the least urgent give way"]),
        (the_newest_of_all, ["the least urgent give way"]),
        (
            the_last_in_the_list_of_the_least_urgent,
            ["You stopped B, the oldest of those with priority", "B came 1st, A 2nd."],
        ),
        (
            the_oldest_of_the_least_urgent,
            ["of the least urgent the oldest goes on, unless it is alone"],
        ),
        (
            the_least_work_to_lose,
            ["of the least urgent the oldest goes on, unless it is alone"],
        ),
        (anybody_else, ["anybody_else() raised ValueError", "Running: A with priority"]),
        (the_row, ["the victim is one of those who run", "What is asked for is an id: A."]),
        (sorts_in_place, ["You changed running", "what was given stays as it was"]),
        (
            for_letters_only,
            [
                "A run of the engine with 8 blocks of 8 slots",
                "for_letters_only() raised AttributeError: 'int' object has no attribute 'upper'",
                "`return max(running",
            ],
        ),
    ],
)
def test_a_wrong_victim_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


# Right


def the_least_work_bar_the_oldest(running, needed_by):
    least = max(priority for _, priority, _, _, _ in running)
    peers = sorted((arrival, done, id_) for id_, p, arrival, done, _ in running if p == least)
    _, *younger = peers
    return min(younger, key=lambda one: one[1])[2] if younger else peers[0][2]


def itself_where_it_may(running, needed_by):
    peers = [row for row in running if row[1] == max(other[1] for other in running)]
    oldest = min(peers, key=lambda row: row[2])
    if len(peers) == 1:
        return oldest[0]
    younger = [row[0] for row in peers if row is not oldest]
    return needed_by if needed_by in younger else younger[0]


@pytest.mark.parametrize("right", [solution, the_least_work_bar_the_oldest, itself_where_it_may])
def test_every_right_rule_is_accepted_and_no_urgent_request_is_stopped_by_it(right, capsys) -> None:
    policy = check.lesson_09(right)
    assert f"{right.__name__}() keeps its promises in all" in capsys.readouterr().out
    hurry = scenario("priority")
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=policy)
    assert log[0].classes["policy"] == "YourVictims"
    dev = log.requests.loc[4]
    assert (dev.preemptions, dev.finished_step) == (0, 21)
    assert set(log.requests.finish_reason) == {"length"}


def test_the_solution_is_the_engines_own_rule() -> None:
    hurry = scenario("priority")
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=YourVictims(solution))
    own = hurry.run()
    assert log.requests.equals(own.requests)


def test_a_right_rule_may_be_quicker_than_the_engines_own_as_the_lesson_says() -> None:
    hurry = scenario("priority")
    policy = YourVictims(the_least_work_bar_the_oldest)
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=policy)
    assert len(log.steps) < len(hurry.run().steps) == 39


def test_the_engine_asks_the_learners_part_and_not_its_own() -> None:
    """The first in line gives way: a rule that the check refuses shows whose word counts."""
    hurry = scenario("priority")
    policy = YourVictims(lambda running, needed_by: running[0][0])
    log = simulate(hurry.workload, hurry.config, cost=Cost(10, 0.25), policy=policy)
    assert log.of(Preempted)[0].request == 1


def stub(running, needed_by):
    """The id of the one that gives way."""
    ...


def later(running, needed_by):
    raise NotImplementedError


@pytest.mark.parametrize("untouched", [stub, later])
def test_an_untouched_stub_is_not_written_yet_and_the_engine_runs_its_own(
    untouched, capsys
) -> None:
    policy = check.lesson_09(untouched)
    assert "not written yet" in capsys.readouterr().out
    assert type(policy) is Priority


def test_cases_come_smallest_first_and_whole_runs_last() -> None:
    given = cases()
    lengths = [len(one.running) for one in given if isinstance(one, Shortage)]
    assert lengths == sorted(lengths)
    kinds = [isinstance(one, Crowd) for one in given]
    assert kinds == sorted(kinds)


def test_the_runs_are_tight_enough_that_somebody_must_give_way() -> None:
    for crowd in (one for one in cases() if isinstance(one, Crowd)):
        asked = []

        def rule(running, needed_by, asked=asked):
            asked.append(needed_by)
            return solution(running, needed_by)

        attempt(rule, crowd)
        assert asked
