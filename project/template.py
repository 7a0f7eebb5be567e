"""Your engine: settings, and the parts that you wrote in the lessons.

Paste your solution over a stub below. A part that is still a stub, or that you delete, is the engine's
own. You may add helper functions, constants and imports of Python's own modules. `project/README.md`
says how the score works; `make score` tells you yours.
"""

# One set of settings for all three workloads. A missing setting has the engine's default. You may set
# token_budget, policy ("fcfs", "priority", "sjf", "lpm", "fair"), eviction ("lru", "lfu"),
# prefix_cache ("radix", "hash", "off"), admission ("whole", "first_chunk"), preemption,
# chunked_prefill, batching and async_scheduling. With prefix_cache="hash" there is no tree, so `split`
# and `choose_leaf` have to stay stubs.
SETTINGS = {}


# These parts decide. They need not decide as in their lesson: better ones score more.


def order(request):
    """Return a number, or a tuple of numbers. The waiting request with the smallest goes first.

    It is called for each waiting request in each step. `request` has id, label, priority (0 is urgent),
    prompt_tokens, cached_tokens (how many of them the prefix cache has now), output_tokens (more than
    0 only after a preemption), max_tokens, preemptions, age_ms (since it arrived) and ttft_goal_ms.
    If this stub stays, the policy in SETTINGS decides.
    """
    ...


def admit(waiting, seats, budget_left, free_blocks, block_size):
    """Lesson 04: return the ids of the requests that join in this step, in order.

    waiting: rows of (id, tokens to compute, seats), the first in line first. The engine never admits a
    request that does not fit, and the first request that you leave out blocks all behind it.
    """
    ...


def choose_leaf(nodes):
    """Lesson 08: return the id of the leaf to evict; None if every leaf is locked.

    nodes: rows of (id, children, lock_ref, last), one for each node of the tree. Node 0 is the root.
    """
    ...


def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):
    """Lesson 10: return the token budget, or None for the default. Called once for each workload.

    A step takes base_ms, and per_token_ms for each of its tokens; up to `decodes` requests decode.
    itl_goal_ms is the workload's goal for the longest gap. A token_budget in SETTINGS comes first.
    """
    ...


def victim(running, needed_by):
    """Lesson 09: return the id of the request that is preempted so that `needed_by` gets a block.

    running: rows of (id, priority, arrival, computed tokens, blocks) in order of admission.
    """
    ...


# These parts have one right answer. They must keep the promises of their lesson's check.


class BlockPool:
    """Lesson 05: a pool of KV blocks with reference counts."""

    def __init__(self, num_blocks): ...

    def allocate(self, n): ...

    def share(self, block): ...

    def release(self, block): ...

    def writable(self, block): ...


def split(node, at, block_size, new_id):
    """Lesson 06: cut the edge of `node` after `at` blocks. Return the new, upper node."""
    ...


# These parts do not change the score, but the gates test them as well.


def distribution(logits, temperature, top_k, top_p):
    """Lesson 01: return the probability of each token."""
    ...


def attend(q, k_new, v_new, k_cache, v_cache, *, start):
    """Lesson 02: write the new keys and values; return what each new token reads."""
    ...


def count_work(shape, rows, bytes_per_value):
    """Lesson 03: return (FLOPs, bytes) of a step."""
    ...


def accept(p, q, drafts, uniforms, pick):
    """Lesson 14: return the accepted drafts and one more token."""
    ...


class Outbox:
    """Lesson 13: a bounded buffer for one reader."""

    def __init__(self, limit): ...

    def put(self, text): ...

    def close(self, reason): ...

    async def get(self): ...


def fetch_or_compute(fetch_us, compute_us):
    """Lesson 16: return how many of the next blocks to fetch; the ones after them are computed."""
    ...


def report(log):
    """Lesson 12: return a report on the request that waited longest."""
    ...


def mask(fsm, state, vocab, eos):
    """Lesson 15: return for each token whether it may come next."""
    ...


class Ahead:
    """Lesson 17: count the tokens of one request, one step ahead."""

    def __init__(self, prompt, max_tokens): ...

    def want(self): ...

    def scheduled(self, count): ...

    def commit(self, token, ends): ...

    def preempted(self): ...


def route(blocks, load, known, in_flight, now):
    """Lesson 18: return the replica that gets a request."""
    ...


def fetch(tokens, here, there, block_size, move_ms, compute_ms):
    """Lesson 19: return how many blocks to fetch, after the first `here`."""
    ...
