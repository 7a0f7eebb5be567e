"""Lesson 04: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_04 import Promise
from tests.lessons.wrong import Wrong

WRONG = [
    Wrong(
        "one_seat_is_taken_for_all_samples",
        Promise.SEATS,
        {"seats -= samples": "seats -= 1"},
        ["A", 2, "B", 0],
    ),
    Wrong("one_too_many", Promise.SEATS, {"samples > seats": "seats < 0"}, [0, "A"]),
    Wrong("forgets_memory", Promise.BLOCKS, {" or blocks > free_blocks": ""}, [0]),
    Wrong(
        "memory_for_the_first_chunk", Promise.BLOCKS, {"-tokens //": "-chunk //"}, ["A", 5, 2, 1, 4]
    ),
    Wrong("passes_over", Promise.IN_ORDER, {"break": "continue"}, ["A", 5, "B", 1, 3, 32, 4]),
    Wrong(
        "returns_lists_of_id_and_tokens",
        Promise.WAITING_ONCE,
        {"append(id_)": "append([id_, tokens])"},
        ["A"],
    ),
    Wrong(
        "budget_for_the_whole_prompt",
        Promise.AS_MANY_AS_FIT,
        {"chunk == 0": "tokens > budget_left"},
        ["A", 4],
    ),
    Wrong(
        "needs_one_block_to_spare",
        Promise.AS_MANY_AS_FIT,
        {"blocks > free": "blocks >= free"},
        ["A"],
    ),
    Wrong("ignores_the_budget", Promise.BUDGET, {" or chunk == 0": ""}),
    Wrong(
        "empties_the_queue",
        CommonPromise.UNCHANGED,
        {"    return": "    waiting.clear()\n    return"},
    ),
    Wrong("returns_a_count", Promise.LIST, {"return admitted": "return len(admitted)"}, [0]),
]
