"""Lesson 04: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_04 import Promise
from tests.lessons.wrong import Wrong

WRONG = [
    Wrong("one_seat_is_taken_for_all_samples", Promise.SEATS, {"seats -= samples": "seats -= 1"}),
    Wrong("one_too_many", Promise.SEATS, {"samples > seats": "seats < 0"}),
    Wrong("forgets_memory", Promise.BLOCKS, {" or blocks > free_blocks": ""}),
    Wrong("memory_for_the_first_chunk", Promise.BLOCKS, {"-tokens //": "-chunk //"}),
    Wrong("passes_over", Promise.IN_ORDER, {"break": "continue"}),
    Wrong(
        "returns_lists_of_id_and_tokens",
        Promise.WAITING_ONCE,
        {"append(id_)": "append([id_, tokens])"},
    ),
    Wrong(
        "budget_for_the_whole_prompt",
        Promise.AS_MANY_AS_FIT,
        {"chunk == 0": "tokens > budget_left"},
    ),
    Wrong("needs_one_block_to_spare", Promise.AS_MANY_AS_FIT, {"blocks > free": "blocks >= free"}),
    Wrong("ignores_the_budget", Promise.BUDGET, {" or chunk == 0": ""}),
    Wrong(
        "empties_the_queue",
        CommonPromise.UNCHANGED,
        {"    return": "    waiting.clear()\n    return"},
    ),
    Wrong("returns_a_count", Promise.LIST, {"return admitted": "return len(admitted)"}),
]
