"""Lesson 17: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_17 import Promise
from tests.lessons.wrong import Wrong

KNOWN = "set(known.get(replica, ()))"
LIMIT = "max(8, 2 * mean)"
KEY = "(missing(replica), load[replica])"
FRESH = " and now - sent_at <= 5_000"
WRONG = [
    Wrong(
        "returns_a_number",
        Promise.ALIVE,
        {"return min(free": "return int(min(free", f"{KEY})": f"{KEY}))"},
    ),
    Wrong(
        "asks_the_dead",
        Promise.ALIVE,
        {"for replica in load": "for replica in known", "load[replica]": "load.get(replica, 0)"},
    ),
    Wrong(
        "affinity_then_load_without_a_limit",
        Promise.OVERLOADED,
        {f" if load[replica] <= {LIMIT}": ""},
    ),
    Wrong("piles_up_to_forty", Promise.OVERLOADED, {LIMIT: "max(39, 2 * mean)"}),
    Wrong("least_loaded", Promise.LONGEST, {KEY: "load[replica]"}),
    Wrong(
        "any_hit_will_do",
        Promise.LONGEST,
        {KEY: "(missing(replica) == len(blocks), load[replica])"},
    ),
    Wrong(
        "waits_for_the_whole_prompt",
        Promise.LONGEST,
        {KEY: "(missing(replica) > 0, load[replica])"},
    ),
    Wrong(
        "counts_blocks_anywhere",
        Promise.BEGINNING,
        {"missing(replica),": "len(set(blocks) - cached[replica]),"},
    ),
    Wrong("ignores_what_is_in_flight", Promise.GUESSED, {"in in_flight": "in ()"}),
    Wrong("never_drops_a_guess", Promise.OLD, {FRESH: ""}),
    Wrong("keeps_guesses_that_are_reported", Promise.REPORTED, {" and not reported": ""}),
    Wrong("only_affinity", Promise.LEAST, {KEY: "missing(replica)"}),
    Wrong("load_then_affinity", Promise.SIX, {KEY: "(load[replica], missing(replica))"}),
    Wrong("adds_guesses_of_the_dead", CommonPromise.ANSWERS, {"replica in load and ": ""}),
    Wrong("takes_eight_for_full", CommonPromise.ANSWERS, {LIMIT: "8"}),
    Wrong("writes_into_known", CommonPromise.UNCHANGED, {KNOWN: "known[replica]"}),
]
