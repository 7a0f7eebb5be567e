"""Lesson 17: plausible wrong parts, the promises that they break, and facts of the messages."""

import random

from checks.broken import CommonPromise
from checks.lesson_17 import Promise


def cached_on(load, known, in_flight, now):
    """Right: the blocks that are or will be cached on each replica."""
    cached = {replica: set(known[replica]) for replica in load}
    for replica, blocks, sent, reported in in_flight:
        if replica in load and not reported and now - sent <= 5_000:
            cached[replica].update(blocks)
    return cached


def hits_in(blocks, cached):
    """Right: the length of the cached beginning on each replica."""
    hits = {}
    for replica, found in cached.items():
        hits[replica] = 0
        while hits[replica] < len(blocks) and blocks[hits[replica]] in found:
            hits[replica] += 1
    return hits


def not_overloaded(load):
    """Right: the replicas that may get more."""
    mean = sum(load.values()) / len(load)
    return [replica for replica in load if load[replica] <= 8 or load[replica] <= 2 * mean]


def best(load, hits):
    """Right: the longest beginning, then the smaller load."""
    return min(not_overloaded(load), key=lambda replica: (-hits[replica], load[replica]))


def least_loaded(blocks, load, known, in_flight, now):
    return min(load, key=load.get)


def only_affinity(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return max(load, key=lambda replica: hits[replica])


def affinity_then_load_without_a_limit(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return max(load, key=lambda replica: (hits[replica], -load[replica]))


def load_then_affinity(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return min(load, key=lambda replica: (load[replica], -hits[replica]))


def first(blocks, load, known, in_flight, now):
    return next(iter(load))


def in_turn(blocks, load, known, in_flight, now):
    return sorted(load)[now % len(load)]


def two_choices(blocks, load, known, in_flight, now):
    return min(random.Random(now).sample(sorted(load), min(2, len(load))), key=load.get)


def hash_of_the_prompt(blocks, load, known, in_flight, now):
    return sorted(load)[sum(blocks) % len(load)]


def hash_of_the_first_block(blocks, load, known, in_flight, now):
    return sorted(load)[blocks[0] % len(load)]


def counts_blocks_anywhere(blocks, load, known, in_flight, now):
    cached = cached_on(load, known, in_flight, now)
    return best(load, {replica: len(cached[replica] & set(blocks)) for replica in load})


def skips_missing_blocks(blocks, load, known, in_flight, now):
    cached = cached_on(load, known, in_flight, now)
    hits = {}
    for replica in load:
        hits[replica] = 0
        for block in blocks:
            if block not in cached[replica]:
                continue
            hits[replica] += 1
    return best(load, hits)


def ignores_what_is_in_flight(blocks, load, known, in_flight, now):
    return best(load, hits_in(blocks, cached_on(load, known, [], now)))


def ignores_what_is_known(blocks, load, known, in_flight, now):
    nothing = {replica: set() for replica in load}
    return best(load, hits_in(blocks, cached_on(load, nothing, in_flight, now)))


def never_drops_a_guess(blocks, load, known, in_flight, now):
    return best(load, hits_in(blocks, cached_on(load, known, in_flight, 0)))


def keeps_guesses_that_are_reported(blocks, load, known, in_flight, now):
    rows = [(*row[:3], False) for row in in_flight]
    return best(load, hits_in(blocks, cached_on(load, known, rows, now)))


def believes_only_reported_guesses(blocks, load, known, in_flight, now):
    rows = [(*row[:3], not row[3]) for row in in_flight]
    return best(load, hits_in(blocks, cached_on(load, known, rows, now)))


def takes_seconds_for_milliseconds(blocks, load, known, in_flight, now):
    rows = [row for row in in_flight if now - row[2] <= 5]
    return best(load, hits_in(blocks, cached_on(load, known, rows, now)))


def takes_guesses_for_everywhere(blocks, load, known, in_flight, now):
    rows = [(replica, *row[1:]) for row in in_flight for replica in load]
    return best(load, hits_in(blocks, cached_on(load, known, rows, now)))


def keeps_the_last_guess_only(blocks, load, known, in_flight, now):
    last = {row[0]: row for row in in_flight}
    return best(load, hits_in(blocks, cached_on(load, known, last.values(), now)))


def asks_the_dead(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, {replica: set(found) for replica, found in known.items()})
    return max(known, key=lambda replica: (hits[replica], -load.get(replica, 0)))


def sends_after_the_last_request(blocks, load, known, in_flight, now):
    for replica, sent, _, reported in in_flight:
        if sent[:1] == blocks[:1] and not reported:
            return replica
    return best(load, hits_in(blocks, cached_on(load, known, in_flight, now)))


def adds_guesses_of_the_dead(blocks, load, known, in_flight, now):
    cached = {replica: set(known[replica]) for replica in load}
    for replica, sent, at, reported in in_flight:
        if not reported and now - at <= 5_000:
            cached[replica].update(sent)
    return best(load, hits_in(blocks, cached))


def writes_into_known(blocks, load, known, in_flight, now):
    for replica, sent, at, reported in in_flight:
        if replica in load and not reported and now - at <= 5_000:
            known[replica].update(sent)
    return best(load, hits_in(blocks, {replica: known[replica] for replica in load}))


def limits_of_sglang(blocks, load, known, in_flight, now):
    if max(load.values()) - min(load.values()) > 64:
        return min(load, key=load.get)
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return max(load, key=lambda replica: (hits[replica], -load[replica]))


def avoids_all_above_the_mean(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    mean = sum(load.values()) / len(load)
    below = [replica for replica in load if load[replica] <= mean]
    return min(below, key=lambda replica: (-hits[replica], load[replica]))


def takes_eight_for_full(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return max((one for one in load if load[one] <= 8), key=lambda one: (hits[one], -load[one]))


def piles_up_to_forty(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    free = [replica for replica in load if load[replica] < 40]
    return max(free or load, key=lambda replica: (hits[replica], -load[replica]))


def ties_by_name(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return min(not_overloaded(load), key=lambda replica: (-hits[replica], replica))


def prefers_the_fuller(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return max(not_overloaded(load), key=lambda replica: (hits[replica], load[replica]))


def returns_a_number(blocks, load, known, in_flight, now):
    return int(best(load, hits_in(blocks, cached_on(load, known, in_flight, now))))


def returns_none_without_a_hit(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    longest = best(load, hits)
    return longest if hits[longest] else None


def any_hit_will_do(blocks, load, known, in_flight, now):
    cached = cached_on(load, known, in_flight, now)
    free = not_overloaded(load)
    some = [replica for replica in free if blocks[0] in cached[replica]]
    return min(some or free, key=load.get)


def waits_for_the_whole_prompt(blocks, load, known, in_flight, now):
    cached = cached_on(load, known, in_flight, now)
    free = not_overloaded(load)
    whole = [replica for replica in free if set(blocks) <= cached[replica]]
    return min(whole or free, key=load.get)


def counts_in_microseconds(blocks, load, known, in_flight, now):
    cached = {replica: set(known[replica]) for replica in load}
    for replica, sent, at, reported in in_flight:
        if replica in load and not reported and now - at <= 5_000_000:
            cached[replica].update(sent)
    return best(load, hits_in(blocks, cached))


def adds_known_and_guessed(blocks, load, known, in_flight, now):
    nothing = {replica: set() for replica in load}
    guessed = hits_in(blocks, cached_on(load, nothing, in_flight, now))
    reported = hits_in(blocks, {replica: known[replica] for replica in load})
    return best(load, {replica: reported[replica] + guessed[replica] for replica in load})


def walks_from_the_end(blocks, load, known, in_flight, now):
    return best(load, hits_in(blocks[::-1], cached_on(load, known, in_flight, now)))


def returns_the_hits_as_well(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    replica = best(load, hits)
    return replica, hits[replica]


def threshold_of_sglang(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    longest = best(load, hits)
    if hits[longest] > 0.3 * len(blocks):
        return longest
    return min(not_overloaded(load), key=load.get)


def guesses_only_where_nothing_is_known(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, {replica: known[replica] for replica in load})
    if not any(hits.values()):
        hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return best(load, hits)


def load_weighs_ten_blocks(blocks, load, known, in_flight, now):
    hits = hits_in(blocks, cached_on(load, known, in_flight, now))
    return min(load, key=lambda replica: 10 * load[replica] - hits[replica])


WRONG = [
    (least_loaded, Promise.LONGEST, ["replica 0", "replica 1", "first block"]),
    (only_affinity, Promise.LEAST, ["no block", 1, 0]),
    (affinity_then_load_without_a_limit, Promise.OVERLOADED, [40, 13.7]),
    (load_then_affinity, Promise.SIX, ["49%", "74%", 4, 8]),
    (first, Promise.LONGEST, ["replica 1", "first block"]),
    (in_turn, Promise.LONGEST, ["first block"]),
    (two_choices, Promise.LONGEST, ["first block"]),
    (hash_of_the_prompt, Promise.LONGEST, ["first block"]),
    (hash_of_the_first_block, Promise.LONGEST, ["first block"]),
    (counts_blocks_anywhere, Promise.BEGINNING, ["block 2", "not block 1"]),
    (skips_missing_blocks, Promise.BEGINNING, ["block 2", "not block 1"]),
    (ignores_what_is_in_flight, Promise.GUESSED, ["first 3 blocks", "400 ms"]),
    (ignores_what_is_known, Promise.LONGEST, ["first block"]),
    (never_drops_a_guess, Promise.OLD, ["5,200 ms"]),
    (keeps_guesses_that_are_reported, Promise.REPORTED, ["blocks 1 and 2"]),
    (believes_only_reported_guesses, Promise.REPORTED, ["blocks 1 and 2"]),
    (takes_seconds_for_milliseconds, Promise.GUESSED, ["400 ms"]),
    (takes_guesses_for_everywhere, Promise.GUESSED, ["replica 0", "400 ms"]),
    (keeps_the_last_guess_only, Promise.GUESSED, ["first 4 blocks", "400 ms"]),
    (asks_the_dead, Promise.ALIVE, ["'3'", "'0'"]),
    (sends_after_the_last_request, Promise.LONGEST, ["first 3 blocks"]),
    (adds_guesses_of_the_dead, CommonPromise.ANSWERS, ["KeyError", "'3'"]),
    (writes_into_known, CommonPromise.UNCHANGED, ["known"]),
    (limits_of_sglang, Promise.OVERLOADED, [40, 13.7]),
    (avoids_all_above_the_mean, Promise.SIX, ["54%", "74%"]),
    (takes_eight_for_full, CommonPromise.ANSWERS, ["ValueError"]),
    (ties_by_name, Promise.LEAST, [3, 0]),
    (prefers_the_fuller, Promise.LEAST, [1, 0]),
    (returns_a_number, Promise.ALIVE, [0, "'0'"]),
    (returns_none_without_a_hit, Promise.ALIVE, [None, "'0'"]),
    (any_hit_will_do, Promise.LONGEST, ["first 2 blocks"]),
    (waits_for_the_whole_prompt, Promise.LONGEST, ["no block", "first 3 blocks"]),
    (piles_up_to_forty, Promise.OVERLOADED, [9, 2.25]),
    (counts_in_microseconds, Promise.OLD, ["5,200 ms"]),
    (adds_known_and_guessed, Promise.LEAST, ["first block", 1, 0]),
    (walks_from_the_end, Promise.LONGEST, ["no block", "first 3 blocks"]),
    (returns_the_hits_as_well, Promise.ALIVE, ["'0'"]),
    (threshold_of_sglang, Promise.LONGEST, ["first block"]),
    (guesses_only_where_nothing_is_known, Promise.GUESSED, ["first 3 blocks", "4,900 ms"]),
    (load_weighs_ten_blocks, Promise.SIX, ["49%", "74%"]),
]
