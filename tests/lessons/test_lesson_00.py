"""Lesson 00's exercise: wrong readings of a log are refused helpfully, right ones accepted."""

import pytest

from checks import check
from checks.judging import Verdict, judge
from checks.lesson_00 import Run, attempt, cases, truth
from engine.events.vocabulary import Admitted, StepFinished, StepStarted
from engine.simulation.scenarios import scenario
from engine.simulation.speakers import Speaker
from solutions.lesson_00 import first_token_steps as solution


def verdict(part) -> Verdict:
    return judge(part, cases(), attempt)


def at_admission(log):
    first, step = {}, 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, Admitted):
            first[event.request] = step
    return first


def admission_of_those_who_spoke(log):
    spoke = solution(log)
    return {request: step for request, step in at_admission(log).items() if request in spoke}


def first_finished_step(log):
    [step, *_] = [event.step for event in log if isinstance(event, StepStarted)]
    return dict.fromkeys(solution(log), step)


def one_step_after_admission(log):
    admitted = admission_of_those_who_spoke(log)
    return {request: min(admitted[request] + 1, step) for request, step in solution(log).items()}


def waits(log):
    arrived = log.requests.arrived_step
    return {request: step - int(arrived[request]) for request, step in solution(log).items()}


def last_token(log):
    return {
        int(request): int(step)
        for request, step in zip(log.tokens.request, log.tokens.step, strict=True)
    }


def without_samples(log):
    return {r: step for r, step in solution(log).items() if log.requests["sample"][r] == 0}


def a_list(log):
    return list(solution(log).items())


def counts_steps_from_zero(log):
    return {request: step - 1 for request, step in solution(log).items()}


def names_instead_of_numbers(log):
    return {log.requests.label[request]: step for request, step in solution(log).items()}


def steps_as_words(log):
    return {request: str(step) for request, step in solution(log).items()}


def raises(log):
    return {log.tokens.request[0]: 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (at_admission, ["You have Ada (request 1) in it.", "only requests that got a token"]),
        (
            admission_of_those_who_spoke,
            ["is admitted in step", "What happens between?", "the step of its first token"],
        ),
        (first_finished_step, ["the step of its first token", "What happens between?"]),
        (
            one_step_after_admission,
            ["Step 2 carries no token of Ada (request 1). What does it carry?"],
        ),
        (waits, ["The number of the step is asked for, not how long the wait was."]),
        (last_token, ["carries a token of Ada (request 1), but not the first one."]),
        (without_samples, ["sample 1 of Ada (request 2) is missing.", "becomes two requests"]),
        (a_list, ["You returned [", "a dictionary, from request to step"]),
        (counts_steps_from_zero, ["There is no step 0."]),
        (names_instead_of_numbers, ["You have 'Ada' in it.", "The keys are numbers of requests"]),
        (steps_as_words, ["you say '1'.", "the values are numbers of steps"]),
        (raises, ["raises() raised KeyError", "`return {log.tokens.request[0]: 1}`"]),
    ],
)
def test_a_wrong_reading_is_refused_with_the_case_and_the_promise(wrong, said: list[str]) -> None:
    found = verdict(wrong)
    assert not found.passed
    message = " ".join(str(found).split())
    for words in said:
        assert words in message


def with_pandas(log):
    return log.tokens.groupby("request").step.min().to_dict()


def backwards(log):
    tokens = log.tokens
    rows = reversed(list(zip(tokens.request, tokens.step, strict=True)))
    return {request: step for request, step in rows}


def by_snapshots(log):
    first, step = {}, 0
    for event in list(log):
        step = getattr(event, "step", step)
        for row in getattr(event, "tokens", []) if isinstance(event, StepFinished) else []:
            if row.request not in first:
                first[row.request] = step
    return first


@pytest.mark.parametrize("right", [solution, with_pandas, backwards, by_snapshots])
def test_every_right_reading_is_accepted_and_reads_the_lessons_log(right, capsys) -> None:
    read = check.lesson_00(right)
    assert "keeps its promises" in capsys.readouterr().out
    assert read is right
    assert read(scenario("first_look").run()) == {1: 1, 2: 2, 3: 3, 4: 7, 5: 10}


def stub(log):
    """For each request that got a token, the step of its first."""
    ...


def test_an_untouched_stub_is_not_written_yet_and_ours_reads_the_log(capsys) -> None:
    assert check.lesson_00(stub) is truth
    assert "not written yet" in capsys.readouterr().out


def test_there_are_logs_with_samples_and_with_people_who_have_not_spoken() -> None:
    def silent(run: Run) -> bool:
        return len(truth(run.log)) < sum(person.n for person in run.people)

    assert any(person.n > 1 for run in cases() for person in run.people)
    assert any(silent(run) for run in cases())
    assert str(Run((Speaker("Ada", 1, own=3, n=2),), 1)) == (
        "A log of 1 step (8 tokens a step, 2 places): Ada with 3 prompt tokens, there from step 1, "
        "who wants 2 samples."
    )
