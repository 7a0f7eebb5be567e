"""Lesson 08: how many tokens may a step compute, so that nobody waits too long for a word?"""


def pick_budget(
    base_ms: float, per_token_ms: float, decodes: int, itl_goal_ms: float
) -> int | None:
    """What the goal leaves after the base, in whole tokens; None without one for a prompt."""
    budget = int((itl_goal_ms - base_ms) // per_token_ms)
    return budget if budget > decodes else None
