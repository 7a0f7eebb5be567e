"""Lesson 10: plausible wrong parts and the promises that they break."""

from checks.lesson_10 import Promise

BUDGET = "int((itl_goal_ms - base_ms) // per_token_ms)"
FITS = "return budget if budget > decodes else None"

WRONG = {
    Promise.WHOLE: {"a_whole_float": {BUDGET: BUDGET[4:-1]}},
    Promise.WITHIN_GOAL: {
        "forgets_the_base": {"(itl_goal_ms - base_ms)": "itl_goal_ms"},
        "rounds_up": {BUDGET: "-int((base_ms - itl_goal_ms) // per_token_ms)"},
        "never_gives_up": {FITS: "return max(budget, decodes + 1)"},
    },
    Promise.ROOM_FOR_PROMPT: {
        "leaves_nothing_for_a_prompt": {"budget > decodes": "budget >= decodes"},
        "without_the_decodes": {"return budget if": "return budget - decodes if"},
    },
    Promise.LARGEST: {"tries_up_to_a_thousand": {BUDGET: f"min(999, {BUDGET})"}},
    Promise.NONE_IF_IMPOSSIBLE: {
        "gives_up_early": {"budget > decodes": "budget > decodes + 1"},
        "stays_below_the_goal": {
            FITS: f"budget -= base_ms + per_token_ms * budget == itl_goal_ms\n    {FITS}"
        },
    },
}
