"""draft"""

SETTINGS = {"token_budget": 80, "policy": "lpm"}


def order(r):
    late = r.age_ms > r.ttft_goal_ms and not r.output_tokens
    return (late, r.prompt_tokens - r.cached_tokens + r.max_tokens)
