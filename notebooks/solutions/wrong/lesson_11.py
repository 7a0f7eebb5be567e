"""Lesson 11: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_11 import Promise

HEAD = "if head is None:\n        return None"
SEATS = "if step.running == step.max_num_seqs:"
BUDGET = "if step.budget_left == 0:"
BLOCKS = "-(-head.tokens // head.block_size)"
CHUNK = "min(head.tokens - head.cached_blocks * head.block_size, step.budget_left)"

WRONG = {
    Promise.REASON: {"calls_it_no_free_blocks": {"whole_sequence": "no_free_blocks"}},
    Promise.NOTHING_WAITS: {
        "has_a_reason_though_nothing_waits": {
            HEAD: HEAD.replace("return None", 'return "batch_full"')
        }
    },
    Promise.AFTER_PREEMPTION: {"forgets_the_preemption": {"if step.preempted:": "if not step:"}},
    Promise.SEATS: {"has_a_seat_too_many": {SEATS: SEATS.replace("==", ">")}},
    Promise.BUDGET: {"forgets_the_budget": {BUDGET: BUDGET.replace("==", "<")}},
    Promise.WHOLE: {
        "first_chunk_instead_of_the_whole_prompt": {
            f"{BLOCKS} - head.cached_blocks": BLOCKS.replace("head.tokens", CHUNK)
        },
        "rounds_down": {BLOCKS: "head.tokens // head.block_size"},
    },
    Promise.REUSED: {
        "asks_for_cached_blocks_again": {" - head.cached_blocks": "", " - head.evictable": ""}
    },
    Promise.TAKEN: {"counts_a_block_as_free_and_as_found": {" - head.evictable": ""}},
    Promise.ADMITTED: {
        "wants_a_budget_for_the_whole_prompt": {BUDGET: "if step.budget_left < head.tokens:"},
        "wants_one_block_to_spare": {"needed >": "needed >="},
    },
    Promise.FIRST: {
        "looks_at_the_budget_before_the_seats": {
            SEATS: f'{BUDGET}\n        return "token_budget"\n    {SEATS}'
        }
    },
    CommonPromise.ANSWERS: {"forgets_that_nothing_may_wait": {HEAD: ""}},
}
