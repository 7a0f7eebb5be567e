"""Lesson 14: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_14 import Promise
from tests.lessons.wrong import Wrong

HEAD = "if head is None:\n        return None"
SEATS = "if step.running == step.max_num_seqs:"
BUDGET = "if step.budget_left == 0:"
BLOCKS = "-(-head.tokens // head.block_size)"
CHUNK = "min(head.tokens - head.cached_blocks * head.block_size, step.budget_left)"
WRONG = [
    Wrong("calls_it_no_free_blocks", Promise.REASON, {"whole_sequence": "no_free_blocks"}),
    Wrong(
        "has_a_reason_though_nothing_waits",
        Promise.NOTHING_WAITS,
        {HEAD: HEAD.replace("return None", 'return "batch_full"')},
    ),
    Wrong(
        "forgets_the_preemption", Promise.AFTER_PREEMPTION, {"if step.preempted:": "if not step:"}
    ),
    Wrong("has_a_seat_too_many", Promise.SEATS, {SEATS: SEATS.replace("==", ">")}),
    Wrong("forgets_the_budget", Promise.BUDGET, {BUDGET: BUDGET.replace("==", "<")}),
    Wrong(
        "first_chunk_instead_of_the_whole_prompt",
        Promise.WHOLE,
        {f"{BLOCKS} - head.cached_blocks": BLOCKS.replace("head.tokens", CHUNK)},
    ),
    Wrong("rounds_down", Promise.WHOLE, {BLOCKS: "head.tokens // head.block_size"}),
    Wrong(
        "asks_for_cached_blocks_again",
        Promise.REUSED,
        {" - head.cached_blocks": "", " - head.evictable": ""},
    ),
    Wrong("counts_a_block_as_free_and_as_found", Promise.TAKEN, {" - head.evictable": ""}),
    Wrong(
        "wants_a_budget_for_the_whole_prompt",
        Promise.ADMITTED,
        {BUDGET: "if step.budget_left < head.tokens:"},
    ),
    Wrong("wants_one_block_to_spare", Promise.ADMITTED, {"needed >": "needed >="}),
    Wrong(
        "looks_at_the_budget_before_the_seats",
        Promise.FIRST,
        {SEATS: f'{BUDGET}\n        return "token_budget"\n    {SEATS}'},
    ),
    Wrong("forgets_that_nothing_may_wait", CommonPromise.ANSWERS, {HEAD: ""}),
]
