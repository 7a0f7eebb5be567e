"""Lesson 18: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_18 import Promise


def best_of(numbers, tokens, here, block_size, move_ms, compute_ms):
    """Right, for the numbers that a wrong solution passes in."""

    def total(blocks):
        move = move_ms(blocks) if blocks else 0
        return move + compute_ms(max(0, tokens - (here + blocks) * block_size))

    return min(numbers, key=total)


def most_of(tokens, here, there, block_size):
    return max(0, min(there, (tokens - 1) // block_size) - here)


def moves_what_is_here(tokens, here, there, block_size, move_ms, compute_ms):
    most = min(there, (tokens - 1) // block_size)
    return best_of(range(most + 1), tokens, 0, block_size, move_ms, compute_ms)


def moves_all_whatever_the_link(tokens, here, there, block_size, move_ms, compute_ms):
    return most_of(tokens, here, there, block_size)


def never_moves(tokens, here, there, block_size, move_ms, compute_ms):
    return len(range(0))


def pays_for_a_move_of_nothing(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        range(most + 1),
        key=lambda n: move_ms(n) + compute_ms(tokens - (here + n) * block_size),
    )


def fetches_every_block(tokens, here, there, block_size, move_ms, compute_ms):
    most = max(0, min(there, tokens // block_size) - here)
    return best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def rounds_up(tokens, here, there, block_size, move_ms, compute_ms):
    most = max(0, min(there, -(-tokens // block_size)) - here)
    return best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def counts_tokens(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return block_size * best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def below_nothing(tokens, here, there, block_size, move_ms, compute_ms):
    most = min(there, (tokens - 1) // block_size) - here
    return most if move_ms(most) < compute_ms(most * block_size) else 0


def range_of_nothing(tokens, here, there, block_size, move_ms, compute_ms):
    most = min(there, (tokens - 1) // block_size) - here
    return best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def all_or_nothing(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return best_of((0, most), tokens, here, block_size, move_ms, compute_ms)


def forgets_the_fixed_price(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        range(most + 1),
        key=lambda n: move_ms(n) - move_ms(0) + compute_ms(tokens - (here + n) * block_size),
    )


def compares_with_the_whole_prompt(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return most if move_ms(most) < compute_ms(tokens) else 0


def computes_what_is_here_again(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return most if move_ms(most) < compute_ms((here + most) * block_size) else 0


def one_block_decides(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return most if move_ms(1) < compute_ms(block_size) else 0


def as_long_as_it_gets_better(tokens, here, there, block_size, move_ms, compute_ms):
    blocks, most = 0, most_of(tokens, here, there, block_size)

    def total(n):
        return (move_ms(n) if n else 0) + compute_ms(tokens - (here + n) * block_size)

    while blocks < most and total(blocks + 1) < total(blocks):
        blocks += 1
    return blocks


def takes_what_nobody_has(tokens, here, there, block_size, move_ms, compute_ms):
    most = (tokens - 1) // block_size - here
    return best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def never_the_last_block(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return best_of(range(most or 1), tokens, here, block_size, move_ms, compute_ms)


def computes_blocks(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    left = tokens // block_size - here
    return min(range(most + 1), key=lambda n: (move_ms(n) if n else 0) + compute_ms(left - n))


def moves_tokens(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        range(most + 1),
        key=lambda n: (
            (move_ms(n * block_size) if n else 0) + compute_ms(tokens - (here + n) * block_size)
        ),
    )


def at_the_same_time(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        range(most + 1),
        key=lambda n: max(move_ms(n) if n else 0, compute_ms(tokens - (here + n) * block_size)),
    )


def the_most_expensive(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return max(
        range(most + 1),
        key=lambda n: (move_ms(n) if n else 0) + compute_ms(tokens - (here + n) * block_size),
    )


def returns_the_time(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        (move_ms(n) if n else 0) + compute_ms(tokens - (here + n) * block_size) / 8
        for n in range(most + 1)
    )


def returns_both(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return min(
        ((move_ms(n) if n else 0) + compute_ms(tokens - (here + n) * block_size), n)
        for n in range(most + 1)
    )


def says_whether(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return bool(best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms))


def returns_nothing_for_nothing(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    if most == 0:
        return None
    return best_of(range(most + 1), tokens, here, block_size, move_ms, compute_ms)


def divides(tokens, here, there, block_size, move_ms, compute_ms):
    most = max(0, min(there, (tokens - 1) / block_size) - here)
    return most if move_ms(most) < compute_ms(most * block_size) else 0


def from_the_other_end(tokens, here, there, block_size, move_ms, compute_ms):
    most = max(0, there - here)
    while (here + most) * block_size >= tokens:
        most -= 1
    return most if most and move_ms(most) < compute_ms(most * block_size) else 0


def forgets_that_some_are_here(tokens, here, there, block_size, move_ms, compute_ms):
    most = most_of(tokens, here, there, block_size)
    return best_of(range(most + 1), tokens, 0, block_size, move_ms, compute_ms)


WRONG = [
    (moves_what_is_here, Promise.MISSING, [1]),
    (moves_all_whatever_the_link, Promise.LEAST, []),
    (never_moves, Promise.LEAST, [0, 1]),
    (pays_for_a_move_of_nothing, Promise.LEAST, ["nothing cost"]),
    (fetches_every_block, Promise.LAST, [1, 4, "logits"]),
    (rounds_up, Promise.LAST, ["logits"]),
    (counts_tokens, Promise.MISSING, [4, 1]),
    (below_nothing, Promise.NUMBER, ["-1"]),
    (range_of_nothing, CommonPromise.ANSWERS, ["ValueError"]),
    (all_or_nothing, Promise.LEAST, []),
    (forgets_the_fixed_price, Promise.LEAST, []),
    (compares_with_the_whole_prompt, Promise.LEAST, []),
    (computes_what_is_here_again, Promise.LEAST, []),
    (one_block_decides, Promise.LEAST, []),
    (as_long_as_it_gets_better, Promise.LEAST, []),
    (takes_what_nobody_has, Promise.MISSING, [1, 0]),
    (never_the_last_block, Promise.LEAST, []),
    (computes_blocks, Promise.LEAST, []),
    (moves_tokens, Promise.LEAST, []),
    (at_the_same_time, Promise.LEAST, []),
    (the_most_expensive, Promise.LEAST, []),
    (returns_the_time, Promise.NUMBER, []),
    (returns_both, Promise.NUMBER, []),
    (says_whether, Promise.NUMBER, []),
    (returns_nothing_for_nothing, Promise.NUMBER, [None]),
    (divides, Promise.NUMBER, []),
    (from_the_other_end, Promise.LEAST, []),
    (forgets_that_some_are_here, Promise.LEAST, []),
]
