"""Lesson 18: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_18 import Promise

KNOWN = "set(known.get(replica, ()))"
LIMIT = "max(8, 2 * mean)"
KEY = "(missing(replica), load[replica])"
FRESH = " and now - sent_at <= 5_000"

WRONG = {
    Promise.ALIVE: {
        "asks_the_dead": {
            "for replica in load": "for replica in known",
            "load[replica]": "load.get(replica, 0)",
        },
    },
    Promise.OVERLOADED: {
        "affinity_then_load_without_a_limit": {f" if load[replica] <= {LIMIT}": ""},
        "piles_up_to_forty": {LIMIT: "max(39, 2 * mean)"},
    },
    Promise.LONGEST: {
        "any_hit_will_do": {KEY: "(missing(replica) == len(blocks), load[replica])"},
        "waits_for_the_whole_prompt": {KEY: "(missing(replica) > 0, load[replica])"},
    },
    Promise.BEGINNING: {
        "counts_blocks_anywhere": {"missing(replica),": "len(set(blocks) - cached[replica]),"}
    },
    Promise.GUESSED: {"ignores_what_is_in_flight": {"in in_flight": "in ()"}},
    Promise.OLD: {"never_drops_a_guess": {FRESH: ""}},
    Promise.REPORTED: {"keeps_guesses_that_are_reported": {" and not reported": ""}},
    Promise.LEAST: {"only_affinity": {KEY: "missing(replica)"}},
    Promise.SIX: {"load_then_affinity": {KEY: "(load[replica], missing(replica))"}},
    CommonPromise.ANSWERS: {
        "adds_guesses_of_the_dead": {"replica in load and ": ""},
        "takes_eight_for_full": {LIMIT: "8"},
    },
    CommonPromise.UNCHANGED: {"writes_into_known": {KNOWN: "known[replica]"}},
}
