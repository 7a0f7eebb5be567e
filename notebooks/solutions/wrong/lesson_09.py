"""Lesson 09: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_09 import Promise

KEY = "(row[1], row[2])"
OTHERS = "[row for row in running if row[0] != needed_by]"

WRONG = {
    Promise.RUNNING: {
        "none_if_all_are_alike": {
            "return id_": "return id_ if len({row[1] for row in running}) > 1 else None"
        }
    },
    Promise.LEAST_URGENT: {
        "whoever_needs_it": {"return id_": "return needed_by"},
        "anybody_else_if_there_is_one": {"max(running": f"max({OTHERS} or running"},
    },
    Promise.OLDEST_GOES_ON: {
        "the_most_blocks": {KEY: "(row[1], row[4])"},
        "the_last_in_the_list_of_the_least_urgent": {KEY: "(row[1], running.index(row))"},
    },
    CommonPromise.ANSWERS: {
        "anybody_else": {"max(running": f"max({OTHERS}"},
        "for_letters_only": {"return id_": "return id_.upper()"},
    },
    CommonPromise.UNCHANGED: {
        "sorts_in_place": {"    id_,": "    running.sort(key=lambda row: -row[2])\n    id_,"}
    },
}
