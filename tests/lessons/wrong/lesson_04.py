"""Lesson 04: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_04 import Promise
from solutions.lesson_04 import admit as solution


def blocks_of(tokens: int, size: int) -> int:
    return -(-tokens // size)


def passes_over(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        if slots > seats or chunk == 0 or blocks_of(tokens, block_size) > free_blocks:
            continue
        seats, budget_left = seats - slots, budget_left - chunk
        free_blocks -= blocks_of(tokens, block_size)
        admitted.append(id_)
    return admitted


def budget_for_the_whole_prompt(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        if slots > seats or tokens > budget_left or blocks_of(tokens, block_size) > free_blocks:
            break
        seats, budget_left = seats - slots, budget_left - tokens
        free_blocks -= blocks_of(tokens, block_size)
        admitted.append(id_)
    return admitted


def one_too_many(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        if seats < 0 or chunk == 0 or blocks_of(tokens, block_size) > free_blocks:
            break
        seats, budget_left = seats - slots, budget_left - chunk
        free_blocks -= blocks_of(tokens, block_size)
        admitted.append(id_)
    return admitted


def one_seat_for_all_samples(waiting, seats, budget_left, free_blocks, block_size):
    return solution(
        [(i, tokens, 1) for i, tokens, _ in waiting], seats, budget_left, free_blocks, block_size
    )


def forgets_memory(waiting, seats, budget_left, free_blocks, block_size):
    return solution(waiting, seats, budget_left, 10**9, block_size)


def memory_for_the_first_chunk(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        blocks = blocks_of(chunk, block_size)
        if slots > seats or chunk == 0 or blocks > free_blocks:
            break
        seats, budget_left, free_blocks = seats - slots, budget_left - chunk, free_blocks - blocks
        admitted.append(id_)
    return admitted


def ignores_the_budget(waiting, seats, budget_left, free_blocks, block_size):
    return [] if not waiting else [waiting[0][0]] if seats >= waiting[0][2] else []


def empties_the_queue(waiting, seats, budget_left, free_blocks, block_size):
    admitted = solution(list(waiting), seats, budget_left, free_blocks, block_size)
    while waiting:
        waiting.pop()
    return admitted


def raises(waiting, seats, budget_left, free_blocks, block_size):
    return [waiting[0][0]]


def never_ends(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    while seats:
        pass
    return admitted


def returns_a_count(waiting, seats, budget_left, free_blocks, block_size):
    return len(solution(waiting, seats, budget_left, free_blocks, block_size))


def one_seat_is_taken_for_all_samples(waiting, seats, budget_left, free_blocks, block_size):
    admitted = []
    for id_, tokens, slots in waiting:
        chunk = min(tokens, budget_left)
        if slots > seats or chunk == 0 or blocks_of(tokens, block_size) > free_blocks:
            break
        seats, budget_left = seats - 1, budget_left - chunk
        free_blocks -= blocks_of(tokens, block_size)
        admitted.append(id_)
    return admitted


def free_slots_for_free_blocks(waiting, seats, budget_left, free_blocks, block_size):
    admitted, free_slots = [], free_blocks * block_size
    for id_, tokens, slots in waiting:
        if slots > seats or budget_left <= 0 or tokens > free_slots:
            break
        seats, budget_left, free_slots = seats - slots, budget_left - tokens, free_slots - tokens
        admitted.append(id_)
    return admitted


def the_shortest_first(waiting, seats, budget_left, free_blocks, block_size):
    shortest = sorted(waiting, key=lambda row: row[1])
    return solution(shortest, seats, budget_left, free_blocks, block_size)


def returns_lists_of_id_and_tokens(waiting, seats, budget_left, free_blocks, block_size):
    admitted = solution(waiting, seats, budget_left, free_blocks, block_size)
    return [[id_, tokens] for id_, tokens, _ in waiting if id_ in admitted]


WRONG = [
    (one_seat_is_taken_for_all_samples, Promise.SEATS, ["A", 2, "B", 0]),
    (free_slots_for_free_blocks, Promise.BLOCKS, ["B", 1, 0]),
    (the_shortest_first, Promise.IN_ORDER, ["A", "B"]),
    (returns_lists_of_id_and_tokens, Promise.WAITING_ONCE, ["A"]),
    (passes_over, Promise.IN_ORDER, ["A", 5, "B", 1, 3, 32, 4]),
    (budget_for_the_whole_prompt, Promise.AS_MANY_AS_FIT, ["A", 4]),
    (one_too_many, Promise.SEATS, [0, "A"]),
    (one_seat_for_all_samples, Promise.SEATS, ["A", 2]),
    (forgets_memory, Promise.BLOCKS, [0]),
    (memory_for_the_first_chunk, Promise.BLOCKS, ["A", 5, 2, 1, 4]),
    (ignores_the_budget, Promise.BUDGET, []),
    (empties_the_queue, CommonPromise.UNCHANGED, []),
    (raises, CommonPromise.ANSWERS, ["raises()", "IndexError", "`return [waiting[0][0]]`"]),
    (never_ends, CommonPromise.ENDS, ["100,000"]),
    (returns_a_count, Promise.LIST, [0]),
]
