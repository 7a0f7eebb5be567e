"""Lesson 09: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_09 import Promise
from tests.lessons.wrong import Wrong

KEY = "(row[1], row[2])"
OTHERS = "[row for row in running if row[0] != needed_by]"
WRONG = [
    Wrong(
        "none_if_all_are_alike",
        Promise.RUNNING,
        {"return id_": "return id_ if len({row[1] for row in running}) > 1 else None"},
    ),
    Wrong("whoever_needs_it", Promise.LEAST_URGENT, {"return id_": "return needed_by"}),
    Wrong(
        "anybody_else_if_there_is_one",
        Promise.LEAST_URGENT,
        {"max(running": f"max({OTHERS} or running"},
    ),
    Wrong("the_most_blocks", Promise.OLDEST_GOES_ON, {KEY: "(row[1], row[4])"}),
    Wrong(
        "the_last_in_the_list_of_the_least_urgent",
        Promise.OLDEST_GOES_ON,
        {KEY: "(row[1], running.index(row))"},
    ),
    Wrong("anybody_else", CommonPromise.ANSWERS, {"max(running": f"max({OTHERS}"}),
    Wrong("for_letters_only", CommonPromise.ANSWERS, {"return id_": "return id_.upper()"}),
    Wrong(
        "sorts_in_place",
        CommonPromise.UNCHANGED,
        {"    id_,": "    running.sort(key=lambda row: -row[2])\n    id_,"},
    ),
]
