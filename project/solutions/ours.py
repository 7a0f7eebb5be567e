"""Our solution: spend nothing on requests that are too late, and leave the last blocks free.

It comes from a search over settings and rules, on other seeds than the public ones. What it does:

- A request that can no longer meet its TTFT goal earns nothing. It waits behind the requests that
  still can, until it is about to starve, which would cost points.
- Among the others, little work goes first, but each millisecond of waiting counts as much as a token of
  work. So a long request gets its turn.
- A preemption breaks the gap goal. `admit` leaves two blocks free, so running requests can grow.
"""

SETTINGS = {"token_budget": 80}  # the longest step takes 30 ms: the tightest gap goal

PREFILL_MS = 60  # about the time from admission to first token
ABOUT_TO_STARVE, STARVED = 4, 5  # times the TTFT goal
SPARE_BLOCKS = 2


def order(request):
    """Return (class, work): those about to starve, those in time, and then those that are too late."""
    late = request.age_ms + PREFILL_MS > request.ttft_goal_ms and not request.output_tokens
    if late and ABOUT_TO_STARVE < request.age_ms / request.ttft_goal_ms < STARVED:
        return (-1, -request.age_ms)
    work = request.prompt_tokens - request.cached_tokens + request.max_tokens
    return (late, work - request.age_ms)


def admit(waiting, seats, budget_left, free_blocks, block_size):
    """Lesson 04, with blocks to spare."""
    admitted = []
    for id_, tokens, samples in waiting:
        blocks = -(-tokens // block_size)
        if samples > seats or budget_left == 0 or blocks + SPARE_BLOCKS > free_blocks:
            break
        seats -= samples
        budget_left -= min(tokens, budget_left)
        free_blocks -= blocks
        admitted.append(id_)
    return admitted
