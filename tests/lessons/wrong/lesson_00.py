"""Lesson 00: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_00 import Promise
from engine.events.vocabulary import Admitted, StepFinished, StepScheduled, StepStarted
from solutions.lesson_00 import first_token_steps as solution


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


def first_row_of_each_step(log):
    first = {}
    for step, event in enumerate(log.of(StepFinished), 1):
        if event.tokens:
            first.setdefault(event.tokens[0].request, step)
    return first


def stops_at_the_first_token(log):
    for step, event in enumerate(log.of(StepFinished), 1):
        for row in event.tokens:
            return {row.request: step}
    return {}


def none_for_those_without_tokens(log):
    return {row.request: row.first_token_step for row in log.request_rows}


def when_first_scheduled(log):
    first = {}
    for step, event in enumerate(log.of(StepScheduled), 1):
        for row in event.rows:
            first.setdefault(row.request, step)
    return first


def index_instead_of_step(log):
    return {token.request: token.index for token in log.token_rows if token.index == 0}


def keeps_the_latest(log):
    first, step = {}, 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        if isinstance(event, StepFinished):
            for row in event.tokens:
                first[row.request] = step
    return first


def counts_events(log):
    first = {}
    for number, event in enumerate(log):
        if isinstance(event, StepFinished):
            for row in event.tokens:
                if row.request not in first:
                    first[row.request] = number
    return first


def first_row_only(log):
    first = {}
    for event in log:
        if isinstance(event, StepFinished) and event.tokens:
            row = event.tokens[0]
            if row.request not in first:
                first[row.request] = event.step
    return first


def overwritten_by_sorting(log):
    tokens = sorted(log.token_rows, key=lambda token: token.step, reverse=False)
    return {token.request: token.step for token in tokens}


def index_one_is_the_first(log):
    return {token.request: token.step for token in log.token_rows if token.index == 1}


def step_counter_of_own(log):
    first, step = {}, 0
    for event in log:
        if isinstance(event, StepFinished):
            for row in event.tokens:
                first.setdefault(row.request, step)
            step += 1
    return first


def zero_for_the_silent(log):
    first = {row.request: 0 for row in log.request_rows}
    for token in log.token_rows:
        if first[token.request] == 0:
            first[token.request] = token.step
    return first


def prints_and_returns_nothing(log):
    for token in log.token_rows:
        if token.index == 0:
            print(token.request, token.step)


def step_of_the_token_ids(log):
    first = {}
    for event in log:
        if isinstance(event, StepFinished):
            for row in event.tokens:
                if row.request not in first:
                    first[row.request] = row.ids[0]
    return first


def by_step(log):
    first, seen = {}, set()
    for token in log.token_rows:
        if token.request not in seen:
            seen.add(token.request)
            first[token.step] = token.request
    return first


def return_inside_the_loop(log):
    first = {}
    for event in log:
        if isinstance(event, StepFinished):
            for row in event.tokens:
                if row.request not in first:
                    first[row.request] = event.step
            return first
    return None


def five_requests(log):
    steps = {}
    for request in range(1, 6):
        steps[request] = min(token.step for token in log.token_rows if token.request == request)
    return steps


def lists_of_steps(log):
    steps = {}
    for token in log.token_rows:
        steps.setdefault(token.request, []).append(token.step)
    return steps


def started_step_is_the_next(log):
    first, step = {}, 1
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step + 1
        elif isinstance(event, StepFinished):
            for row in event.tokens:
                first.setdefault(row.request, step)
    return first


def when_admitted_if_in_tokens(log):
    admitted, first, step = {}, {}, 0
    for event in log:
        if isinstance(event, StepStarted):
            step = event.step
        elif isinstance(event, Admitted):
            admitted[event.request] = step
        elif isinstance(event, StepFinished):
            for row in event.tokens:
                first[row.request] = admitted[row.request]
    return first


def by_label(log):
    return {row.label: row.first_token_step for row in log.request_rows}


def events_as_dictionaries(log):
    first = {}
    for event in log:
        if event["type"] == "step_finished":
            for row in event["tokens"]:
                first.setdefault(row["request"], event["step"])
    return first


WRONG = [
    (at_admission, Promise.ONLY_WITH_TOKENS, ["Ada", 1]),
    (admission_of_those_who_spoke, Promise.FIRST_STEP, []),
    (first_finished_step, Promise.FIRST_STEP, []),
    (one_step_after_admission, Promise.FIRST_STEP, [2, "Ada", 1]),
    (waits, Promise.FIRST_STEP, []),
    (last_token, Promise.FIRST_STEP, ["Ada", 1]),
    (without_samples, Promise.ALL_WITH_TOKENS, [1, "Ada", 2]),
    (a_list, Promise.IS_DICT, []),
    (counts_steps_from_zero, Promise.FIRST_STEP, [0]),
    (names_instead_of_numbers, Promise.ONLY_WITH_TOKENS, ["'Ada'"]),
    (steps_as_words, Promise.STEP_NUMBERS, ["'1'"]),
    (
        raises,
        CommonPromise.ANSWERS,
        ["raises()", "KeyError", "`return {log.tokens.request[0]: 1}`"],
    ),
    (first_row_of_each_step, Promise.ALL_WITH_TOKENS, []),
    (stops_at_the_first_token, Promise.ALL_WITH_TOKENS, []),
    (none_for_those_without_tokens, Promise.ONLY_WITH_TOKENS, ["Ada", 1]),
    (when_first_scheduled, Promise.ONLY_WITH_TOKENS, ["Ada", 1]),
    (index_instead_of_step, Promise.FIRST_STEP, [0]),
    (keeps_the_latest, Promise.FIRST_STEP, []),
    (counts_events, Promise.FIRST_STEP, [6, "1 step"]),
    (first_row_only, Promise.ALL_WITH_TOKENS, [1, "Ada", 3]),
    (overwritten_by_sorting, Promise.FIRST_STEP, []),
    (index_one_is_the_first, Promise.ALL_WITH_TOKENS, []),
    (step_counter_of_own, Promise.FIRST_STEP, []),
    (zero_for_the_silent, Promise.ONLY_WITH_TOKENS, []),
    (prints_and_returns_nothing, Promise.IS_DICT, []),
    (step_of_the_token_ids, Promise.FIRST_STEP, ["1 step"]),
    (by_step, Promise.ONLY_WITH_TOKENS, []),
    (return_inside_the_loop, Promise.ALL_WITH_TOKENS, ["Ada", 3]),
    (five_requests, CommonPromise.ANSWERS, []),
    (lists_of_steps, Promise.STEP_NUMBERS, []),
    (started_step_is_the_next, Promise.FIRST_STEP, [2, "1 step"]),
    (when_admitted_if_in_tokens, Promise.FIRST_STEP, []),
    (by_label, Promise.ONLY_WITH_TOKENS, []),
    (events_as_dictionaries, CommonPromise.ANSWERS, []),
]
