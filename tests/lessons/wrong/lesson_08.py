"""Lesson 08: plausible wrong parts and the promises that they break."""

from checks.lesson_08 import Promise
from tests.lessons.wrong import Wrong

BUDGET = "int((itl_goal_ms - base_ms) // per_token_ms)"
FITS = "return budget if budget > decodes else None"
WRONG = [
    Wrong("a_whole_float", Promise.WHOLE, {BUDGET: BUDGET[4:-1]}),
    Wrong("forgets_the_base", Promise.WITHIN_GOAL, {"(itl_goal_ms - base_ms)": "itl_goal_ms"}),
    Wrong(
        "rounds_up", Promise.WITHIN_GOAL, {BUDGET: "-int((base_ms - itl_goal_ms) // per_token_ms)"}
    ),
    Wrong("never_gives_up", Promise.WITHIN_GOAL, {FITS: "return max(budget, decodes + 1)"}),
    Wrong(
        "leaves_nothing_for_a_prompt",
        Promise.ROOM_FOR_PROMPT,
        {"budget > decodes": "budget >= decodes"},
    ),
    Wrong(
        "without_the_decodes",
        Promise.ROOM_FOR_PROMPT,
        {"return budget if": "return budget - decodes if"},
    ),
    Wrong("tries_up_to_a_thousand", Promise.LARGEST, {BUDGET: f"min(999, {BUDGET})"}),
    Wrong(
        "gives_up_early", Promise.NONE_IF_IMPOSSIBLE, {"budget > decodes": "budget > decodes + 1"}
    ),
    Wrong(
        "stays_below_the_goal",
        Promise.NONE_IF_IMPOSSIBLE,
        {FITS: f"budget -= base_ms + per_token_ms * budget == itl_goal_ms\n    {FITS}"},
    ),
]
