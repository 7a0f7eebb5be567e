"""Lesson 08: plausible wrong parts, the promises that they break, and facts of the messages."""

import math

from checks.lesson_08 import Promise
from solutions.lesson_08 import pick_budget as solution


def forgets_the_base(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = int(itl_goal_ms // per_token_ms)
    return budget if budget > decodes else None


def leaves_nothing_for_a_prompt(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = int((itl_goal_ms - base_ms) // per_token_ms)
    return budget if budget >= decodes and budget > 0 else None


def no_more_than_the_decodes(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = solution(base_ms, per_token_ms, decodes, itl_goal_ms)
    return None if budget is None else min(budget, max(1, decodes))


def rounds_up(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = math.ceil((itl_goal_ms - base_ms) / per_token_ms)
    return budget if budget > decodes else None


def stays_below_the_goal(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = 0
    while base_ms + per_token_ms * (budget + 1) < itl_goal_ms:
        budget += 1
    return budget if budget > decodes else None


def without_the_decodes(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = solution(base_ms, per_token_ms, decodes, itl_goal_ms)
    return None if budget is None else budget - decodes


def beside_the_decodes(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = int((itl_goal_ms - base_ms) // per_token_ms) - decodes
    return budget if budget > 0 else None


def half_of_it(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = solution(base_ms, per_token_ms, decodes, itl_goal_ms)
    return None if budget is None else max(decodes + 1, budget // 2)


def never_gives_up(base_ms, per_token_ms, decodes, itl_goal_ms):
    return max(decodes + 1, int((itl_goal_ms - base_ms) // per_token_ms))


def zero_for_none(base_ms, per_token_ms, decodes, itl_goal_ms):
    return solution(base_ms, per_token_ms, decodes, itl_goal_ms) or 0


def gives_up_early(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = int((itl_goal_ms - base_ms) // per_token_ms)
    return budget if budget > decodes + 1 else None


def a_fraction(base_ms, per_token_ms, decodes, itl_goal_ms):
    return (itl_goal_ms - base_ms) / per_token_ms


def tries_up_to_a_thousand(base_ms, per_token_ms, decodes, itl_goal_ms):
    fits = [one for one in range(1000) if base_ms + per_token_ms * one <= itl_goal_ms]
    return fits[-1] if fits and fits[-1] > decodes else None


def rounds(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = round((itl_goal_ms - base_ms) / per_token_ms)
    return budget if budget > decodes else None


def a_whole_float(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = (itl_goal_ms - base_ms) // per_token_ms
    return budget if budget > decodes else None


def a_power_of_two(base_ms, per_token_ms, decodes, itl_goal_ms):
    budget = solution(base_ms, per_token_ms, decodes, itl_goal_ms)
    return budget and max(decodes + 1, 1 << (budget.bit_length() - 1))


WRONG = [
    (tries_up_to_a_thousand, Promise.LARGEST, [999]),
    (rounds, Promise.WITHIN_GOAL, []),
    (a_whole_float, Promise.WHOLE, ["2.0"]),
    (a_power_of_two, Promise.LARGEST, [2]),
    (forgets_the_base, Promise.WITHIN_GOAL, []),
    (leaves_nothing_for_a_prompt, Promise.ROOM_FOR_PROMPT, [2, 12]),
    (no_more_than_the_decodes, Promise.ROOM_FOR_PROMPT, [1]),
    (rounds_up, Promise.WITHIN_GOAL, []),
    (stays_below_the_goal, Promise.NONE_IF_IMPOSSIBLE, []),
    (without_the_decodes, Promise.ROOM_FOR_PROMPT, []),
    (beside_the_decodes, Promise.ROOM_FOR_PROMPT, []),
    (half_of_it, Promise.LARGEST, []),
    (never_gives_up, Promise.WITHIN_GOAL, [2]),
    (zero_for_none, Promise.ROOM_FOR_PROMPT, [0]),
    (gives_up_early, Promise.NONE_IF_IMPOSSIBLE, []),
    (a_fraction, Promise.WHOLE, []),
]
