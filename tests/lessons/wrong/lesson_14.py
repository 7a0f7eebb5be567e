"""Lesson 14: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_14 import Promise


def blocks_of(tokens, head):
    return -(-tokens // head.block_size)


def batch(step):
    """Right: what is in the way before memory is looked at."""
    if step.preempted:
        return "after_preemption"
    if step.running == step.max_num_seqs:
        return "batch_full"
    return "token_budget" if step.budget_left == 0 else None


def memory(step, needed, free):
    """Right, with the right numbers."""
    if step.head is None:
        return None
    return batch(step) or ("whole_sequence" if needed > free else None)


def needed_by(head):
    return blocks_of(head.tokens, head) - head.cached_blocks


def first_chunk_instead_of_the_whole_prompt(step):
    head = step.head
    if head is None:
        return None
    chunk = min(head.tokens - head.cached_blocks * head.block_size, step.budget_left)
    return memory(step, blocks_of(chunk, head), step.free_blocks - head.evictable)


def asks_for_cached_blocks_again(step):
    head = step.head
    return head and memory(step, blocks_of(head.tokens, head), step.free_blocks)


def counts_a_block_as_free_and_as_found(step):
    head = step.head
    return head and memory(step, needed_by(head), step.free_blocks)


def adds_the_evictable_blocks(step):
    head = step.head
    return head and memory(step, needed_by(head), step.free_blocks + head.evictable)


def takes_all_cached_blocks_for_free_ones(step):
    head = step.head
    return head and memory(step, needed_by(head), step.free_blocks - head.cached_blocks)


def forgets_the_preemption(step):
    return reason_after_a_preemption(step._replace(preempted=False))


def reason_after_a_preemption(step):
    head = step.head
    return head and memory(step, needed_by(head), step.free_blocks - head.evictable)


def has_a_seat_too_many(step):
    return reason_after_a_preemption(step._replace(max_num_seqs=step.max_num_seqs + 1))


def forgets_the_budget(step):
    return reason_after_a_preemption(step._replace(budget_left=1))


def wants_a_budget_for_the_whole_prompt(step):
    head = step.head
    if head is not None and batch(step) is None and step.budget_left < head.tokens:
        return "token_budget"
    return reason_after_a_preemption(step)


def looks_at_the_budget_before_the_seats(step):
    if step.head is not None and not step.preempted and step.budget_left == 0:
        return "token_budget"
    return reason_after_a_preemption(step)


def looks_at_memory_first(step):
    head = step.head
    if head and needed_by(head) > step.free_blocks - head.evictable:
        return "whole_sequence"
    return head and batch(step)


def finds_a_reason_by_elimination(step):
    return None if step.head is None else batch(step) or "whole_sequence"


def forgets_that_nothing_may_wait(step):
    needed = needed_by(step.head)
    return memory(step, needed, step.free_blocks - step.head.evictable)


def has_a_reason_though_nothing_waits(step):
    return batch(step) if step.head is None else reason_after_a_preemption(step)


def rounds_down(step):
    head = step.head
    if head is None:
        return None
    needed = head.tokens // head.block_size - head.cached_blocks
    return memory(step, needed, step.free_blocks - head.evictable)


def wants_one_block_to_spare(step):
    head = step.head
    return head and memory(step, needed_by(head) + 1, step.free_blocks - head.evictable)


def compares_tokens_with_blocks(step):
    head = step.head
    return head and memory(step, head.tokens, step.free_blocks)


def forgets_memory(step):
    return None if step.head is None else batch(step)


def calls_it_no_free_blocks(step):
    said = reason_after_a_preemption(step)
    return "no_free_blocks" if said == "whole_sequence" else said


def says_whether(step):
    return reason_after_a_preemption(step) is not None


def names_the_limit(step):
    said = reason_after_a_preemption(step)
    return {"batch_full": "max_num_seqs"}.get(said, said)


WRONG = [
    (first_chunk_instead_of_the_whole_prompt, Promise.WHOLE, ["chunk"]),
    (asks_for_cached_blocks_again, Promise.REUSED, ["31 tokens", "4 blocks", 1]),
    (counts_a_block_as_free_and_as_found, Promise.TAKEN, ["1 evictable", "1 block"]),
    (adds_the_evictable_blocks, Promise.TAKEN, ["1 evictable"]),
    (takes_all_cached_blocks_for_free_ones, Promise.REUSED, ["31 tokens", "3 blocks"]),
    (forgets_the_preemption, Promise.AFTER_PREEMPTION, ["3 seats", "20 tokens", "5 free blocks"]),
    (has_a_seat_too_many, Promise.SEATS, [3]),
    (forgets_the_budget, Promise.BUDGET, ["0 tokens"]),
    (wants_a_budget_for_the_whole_prompt, Promise.ADMITTED, []),
    (looks_at_the_budget_before_the_seats, Promise.FIRST, ["token_budget", "batch_full"]),
    (looks_at_memory_first, Promise.FIRST, ["whole_sequence"]),
    (finds_a_reason_by_elimination, Promise.ADMITTED, ["1 block"]),
    (forgets_that_nothing_may_wait, CommonPromise.ANSWERS, ["AttributeError"]),
    (has_a_reason_though_nothing_waits, Promise.NOTHING_WAITS, ["step.head"]),
    (rounds_down, Promise.WHOLE, []),
    (wants_one_block_to_spare, Promise.ADMITTED, []),
    (compares_tokens_with_blocks, Promise.ADMITTED, []),
    (forgets_memory, Promise.WHOLE, []),
    (calls_it_no_free_blocks, Promise.REASON, ["no_free_blocks"]),
    (says_whether, Promise.REASON, [False]),
    (names_the_limit, Promise.REASON, ["max_num_seqs"]),
]
