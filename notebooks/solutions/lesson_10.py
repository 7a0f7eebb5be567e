"""Lesson 10: how many tokens may a step compute, so that no token comes too late?"""


def pick_budget(
    base_ms: float, per_token_ms: float, decodes: int, itl_goal_ms: float
) -> int | None:
    """Divide what the goal leaves after the base cost; None if no token is left for a prompt."""
    budget = int((itl_goal_ms - base_ms) // per_token_ms)
    return budget if budget > decodes else None
