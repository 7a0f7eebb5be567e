"""A solution of lesson 11's exercise."""

from checks.lesson_11 import Step


def reason(step: Step) -> str | None:
    """Return why the head of the queue is not admitted, or None if it is or nothing waits."""
    head = step.head
    if head is None:
        return None
    if step.preempted:
        return "after_preemption"
    if step.running == step.max_num_seqs:
        return "batch_full"
    if step.budget_left == 0:
        return "token_budget"
    needed = -(-head.tokens // head.block_size) - head.cached_blocks
    if needed > step.free_blocks - head.evictable:
        return "whole_sequence"
    return None
