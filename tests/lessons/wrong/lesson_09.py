"""Lesson 09: plausible wrong parts, the promises that they break, and facts of the messages."""

from checks.broken import CommonPromise
from checks.lesson_09 import Promise


def whoever_needs_it(running, needed_by):
    return needed_by


def the_most_blocks(running, needed_by):
    return max(running, key=lambda row: (row[1], row[4]))[0]


def the_most_blocks_of_all(running, needed_by):
    return max(running, key=lambda row: row[4])[0]


def the_larger_number_is_urgent(running, needed_by):
    return min(running, key=lambda row: (row[1], -row[2]))[0]


def the_last_in_the_list(running, needed_by):
    return running[-1][0]


def the_newest_of_all(running, needed_by):
    return max(running, key=lambda row: row[2])[0]


def the_last_in_the_list_of_the_least_urgent(running, needed_by):
    least = max(row[1] for row in running)
    return [row for row in running if row[1] == least][-1][0]


def the_oldest_of_the_least_urgent(running, needed_by):
    return max(running, key=lambda row: (row[1], -row[2]))[0]


def the_least_work_to_lose(running, needed_by):
    return max(running, key=lambda row: (row[1], -row[3]))[0]


def anybody_else(running, needed_by):
    others = [row for row in running if row[0] != needed_by]
    return max(others, key=lambda row: (row[1], row[2]))[0]


def the_row(running, needed_by):
    return max(running, key=lambda row: (row[1], row[2]))


def sorts_in_place(running, needed_by):
    running.sort(key=lambda row: (row[1], row[2]))
    return running[-1][0]


def for_letters_only(running, needed_by):
    return max(running, key=lambda row: (row[1], row[2]))[0].upper()


def anybody_else_if_there_is_one(running, needed_by):
    others = [row for row in running if row[0] != needed_by]
    return max(others or running, key=lambda row: (row[1], row[2]))[0]


def the_newest_then_the_least_urgent(running, needed_by):
    return max(running, key=lambda row: (row[2], row[1]))[0]


def none_if_all_are_alike(running, needed_by):
    if len({row[1] for row in running}) == 1:
        return None
    return max(running, key=lambda row: (row[1], row[2]))[0]


def the_first_admitted_goes_on(running, needed_by):
    least = max(row[1] for row in running)
    _, *rest = peers = [row for row in running if row[1] == least]
    return min(rest or peers, key=lambda row: row[3])[0]


WRONG = [
    (anybody_else_if_there_is_one, Promise.LEAST_URGENT, ["A", 0, "B", 5]),
    (the_newest_then_the_least_urgent, Promise.LEAST_URGENT, ["A", "B"]),
    (none_if_all_are_alike, Promise.RUNNING, [None, "A"]),
    (the_first_admitted_goes_on, Promise.OLDEST_GOES_ON, ["A", "B"]),
    (whoever_needs_it, Promise.LEAST_URGENT, []),
    (the_most_blocks, Promise.OLDEST_GOES_ON, ["A", "B"]),
    (the_most_blocks_of_all, Promise.LEAST_URGENT, []),
    (the_larger_number_is_urgent, Promise.LEAST_URGENT, ["A", 0, "B", 5]),
    (the_last_in_the_list, Promise.LEAST_URGENT, []),
    (the_newest_of_all, Promise.LEAST_URGENT, []),
    (the_last_in_the_list_of_the_least_urgent, Promise.OLDEST_GOES_ON, ["B", "A", 2]),
    (the_oldest_of_the_least_urgent, Promise.OLDEST_GOES_ON, []),
    (the_least_work_to_lose, Promise.OLDEST_GOES_ON, []),
    (anybody_else, CommonPromise.ANSWERS, ["anybody_else", "ValueError", "A"]),
    (the_row, Promise.RUNNING, ["A"]),
    (sorts_in_place, CommonPromise.UNCHANGED, []),
    (
        for_letters_only,
        CommonPromise.ANSWERS,
        [8, "for_letters_only", "AttributeError", "'int'", "'upper'"],
    ),
]
