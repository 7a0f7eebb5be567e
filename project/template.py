"""Your engine: the parts that you wrote in the lessons, and one that is new.

Paste your solution over a stub below. While a part is a stub, the engine can't do what the part is for.
You may add helper functions, constants and imports of Python's own modules. `project/README.md` says
how the score works; `make score` tells you yours.
"""

# One set of settings for all workloads: policy ("fcfs", "priority", "sjf", "lpm" or "fair"), which
# counts until you write `order`, and admission ("whole" or "first_chunk").
SETTINGS = {}


# These parts decide. They needn't decide as in their lesson: better ones score more.


def order(request):
    """Return a number, or a tuple of numbers. The waiting request with the smallest goes first.

    It is called for each waiting request in each step. `request` has id, label, priority (0 is urgent),
    prompt_tokens, cached_tokens (how many of them the prefix cache has now), output_tokens (more than
    0 only after a preemption), max_tokens, preemptions, age_ms (since it arrived) and ttft_goal_ms.
    Until it is written, the policy in SETTINGS decides.
    """
    ...


def admit(waiting, seats, budget_left, free_blocks, block_size):
    """Lesson 04: return the ids of the requests that join in this step, in order.

    waiting: rows of (id, tokens to compute, seats), the first in line first. The engine never admits a
    request that does not fit, and the first request that you leave out blocks all behind it. Until it
    is written, a batch runs to the end of its last request before others join.
    """
    ...


def choose_leaf(nodes):
    """Lesson 08: return the id of the leaf to evict; None if every leaf is locked.

    nodes: rows of (id, children, lock_ref, last), one for each node of the tree. Node 0 is the root.
    There is no prefix cache until `BlockPool`, `split` and `choose_leaf` are all written.
    """
    ...


def victim(running, needed_by):
    """Lesson 09: return the id of the request that is preempted so that `needed_by` gets a block.

    running: rows of (id, priority, arrival, computed tokens, blocks) in order of admission. Until it is
    written, a request is admitted only if there is memory for its max_tokens.
    """
    ...


def pick_budget(base_ms, per_token_ms, decodes, itl_goal_ms):
    """Lesson 10: return the token budget. It is called once for each workload.

    A step takes base_ms, and per_token_ms for each of its tokens; up to `decodes` requests decode.
    itl_goal_ms is the workload's goal for the longest gap. Until it is written, or if it returns None,
    a prompt is computed in one step.
    """
    ...


def route(blocks, load, known, in_flight, now):
    """Lesson 18: return the replica that gets a request. Until it is written, they take turns."""
    ...


# These parts have one right answer, which the check of their lesson tests. Most of them switch on an
# ability of the engine; all of them count as checks.


def distribution(logits, temperature, top_k, top_p):
    """Lesson 01: return the probability of each token. Without it, sampled requests are rejected."""
    ...


def attend(q, k_new, v_new, k_cache, v_cache, *, start):
    """Lesson 02: write the new keys and values; return what each new token reads."""
    ...


def count_work(shape, rows, bytes_per_value):
    """Lesson 03: return (FLOPs, bytes) of a step."""
    ...


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


def report(log):
    """Lesson 12: return a report on the request that waited longest."""
    ...


class Outbox:
    """Lesson 13: a bounded buffer for one reader. Without it, an answer comes as a whole."""

    def __init__(self, limit): ...

    def put(self, text): ...

    def close(self, reason): ...

    async def get(self): ...


def accept(p, q, drafts, uniforms, pick):
    """Lesson 14: return the accepted drafts and one more token. Without it, nothing is drafted."""
    ...


def mask(fsm, state, vocab, eos):
    """Lesson 15: return for each token whether it may come next. Without it, JSON is rejected."""
    ...


def fetch_or_compute(fetch_us, compute_us):
    """Lesson 16: return how many of the next blocks to fetch; the ones after them are computed.

    Without it, and without a prefix cache, there is no memory below the GPU.
    """
    ...


class Ahead:
    """Lesson 17: count the tokens of one request, one step ahead.

    Without it, the GPU waits while a step is scheduled.
    """

    def __init__(self, prompt, max_tokens): ...

    def want(self): ...

    def scheduled(self, count): ...

    def commit(self, token, ends): ...

    def preempted(self): ...


def fetch(tokens, here, there, block_size, move_ms, compute_ms):
    """Lesson 19: return how many blocks to fetch, after the first `here`.

    Without it, no KV moves between replicas, so each of them computes prompts and answers.
    """
    ...
