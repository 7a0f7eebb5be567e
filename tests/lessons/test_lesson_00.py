"""Lesson 00's exercise: right readings of a log are accepted."""

import pytest

from checks import check
from checks.lesson_00 import Run, cases, truth
from engine.events.vocabulary import StepFinished
from engine.simulation.scenarios import scenario
from engine.simulation.speakers import Speaker
from solutions.lesson_00 import first_token_steps as solution
from tests.facts import assert_names


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


def from_request_rows(log):
    steps = {row.request: row.first_token_step for row in log.request_rows}
    return {request: step for request, step in steps.items() if step is not None}


def from_token_rows(log):
    return {token.request: token.step for token in log.token_rows if token.index == 0}


def with_the_steps_own_number(log):
    out = dict()
    for e in log.of(StepFinished):
        for r in e.tokens:
            if len(r.ids) > 0 and r.request not in out:
                out[r.request] = e.step
    return out


def with_min(log):
    numbers = {token.request for token in log.token_rows}
    return {n: min(t.step for t in log.token_rows if t.request == n) for n in numbers}


def asks_each_request(log):
    result = {}
    for row in log.request_rows:
        steps = [t.step for t in log.token_rows if t.request == row.request]
        if not steps:
            continue
        result[row.request] = steps[0]
    return result


def while_loop_over_the_events(log):
    i, current, answer = 0, None, {}
    while i < len(log):
        event = log[i]
        if type(event).__name__ == "StepStarted":
            current = event.step
        elif type(event).__name__ == "StepFinished":
            answer = {**{row.request: current for row in event.tokens}, **answer}
        i += 1
    return answer


RIGHT = [
    solution,
    with_pandas,
    backwards,
    by_snapshots,
    from_request_rows,
    from_token_rows,
    with_the_steps_own_number,
    with_min,
    asks_each_request,
    while_loop_over_the_events,
]


@pytest.mark.parametrize("right", RIGHT)
def test_every_right_reading_is_accepted_and_reads_the_lessons_log(right, capsys) -> None:
    read = check.lesson_00(right)
    assert "keeps its promises" in capsys.readouterr().out
    assert read is right
    assert read(scenario("first_look").run()) == {1: 1, 2: 2, 3: 3, 4: 7, 5: 10}


def stub(log):
    """For each request that got a token, the step of its first."""
    ...


def test_an_untouched_stub_counts_as_unwritten_and_ours_reads_the_log(capsys) -> None:
    assert check.lesson_00(stub) is truth
    assert "not written yet" in capsys.readouterr().out


def test_there_are_logs_with_samples_and_with_requests_without_tokens() -> None:
    def silent(run: Run) -> bool:
        return len(truth(run.log)) < sum(person.n for person in run.people)

    assert any(person.n > 1 for run in cases() for person in run.people)
    assert any(silent(run) for run in cases())
    assert_names(Run((Speaker("Ada", 1, own=3, n=2),), 1), 1, 8, "Ada", 3, 2)
