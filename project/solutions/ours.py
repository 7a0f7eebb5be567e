"""Our solution: spend nothing on requests that are too late, and leave the last blocks free.

It has the deciding parts only; the parts with one right answer are those of the lessons. It comes from
a search over rules, on other seeds than the public one. What it does:

- A request that can no longer meet its TTFT goal earns nothing. It waits behind the requests that
  still can, until it is about to starve, which would cost points.
- Among the others, little work goes first, but each millisecond of waiting counts as much as a token of
  work. So a long request gets its turn.
- A preemption breaks the gap goal. `admit` leaves two blocks free, so running requests can grow.
"""

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


def choose_leaf(nodes):
    """Lesson 08: the least recently used leaf."""
    leaves = [(last, id_) for id_, children, lock, last in nodes if id_ and not children + lock]
    return min(leaves)[1] if leaves else None


def victim(running, needed_by):
    """Lesson 09: the least urgent request, and of those the last to arrive."""
    return max(running, key=lambda row: (row[1], row[2]))[0]


def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):
    """Lesson 10: the largest step within the goal."""
    budget = int((itl_goal_ms - base_ms) // per_token_ms)
    return budget if budget > decodes else None


def route(blocks, load, known, in_flight, now):
    """Lesson 18: the longest cached beginning, but no overloaded replica."""
    cached = {replica: set(known.get(replica, ())) for replica in load}
    for replica, sent, at, reported in in_flight:
        if replica in load and not reported and now - at <= 5_000:
            cached[replica].update(sent)

    def missing(replica):
        hits = (count for count, block in enumerate(blocks) if block not in cached[replica])
        return len(blocks) - next(hits, len(blocks))

    most = max(8, 2 * sum(load.values()) / len(load))
    free = [replica for replica in load if load[replica] <= most]
    return min(free, key=lambda replica: (missing(replica), load[replica]))
