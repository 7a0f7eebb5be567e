"""Lesson 04: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_04 import Promise

WRONG = {
    Promise.SEATS: {
        "one_seat_is_taken_for_all_samples": {"seats -= samples": "seats -= 1"},
    },
    Promise.BLOCKS: {
        "memory_for_the_first_chunk": {"-tokens //": "-chunk //"},
    },
    Promise.IN_ORDER: {"passes_over": {"break": "continue"}},
    Promise.WAITING_ONCE: {
        "returns_lists_of_id_and_tokens": {"append(id_)": "append([id_, tokens])"}
    },
    Promise.AS_MANY_AS_FIT: {
        "budget_for_the_whole_prompt": {"chunk == 0": "tokens > budget_left"},
        "needs_one_block_to_spare": {"blocks > free": "blocks >= free"},
    },
    Promise.BUDGET: {"ignores_the_budget": {" or chunk == 0": ""}},
    CommonPromise.UNCHANGED: {
        "empties_the_queue": {"    return": "    waiting.clear()\n    return"}
    },
    Promise.LIST: {"returns_a_count": {"return admitted": "return len(admitted)"}},
}
