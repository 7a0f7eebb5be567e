"""Lesson 07: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_07 import Promise
from tests.lessons.wrong import Wrong

MAY_GO = "not children + lock"
WRONG = [
    Wrong(
        "gives_up_early",
        Promise.CHOOSES_ONE,
        {"if may_go else": "if may_go and not any(row[2] for row in nodes) else"},
    ),
    Wrong("the_root_as_well", Promise.ROOT_STAYS, {f"if id_ and {MAY_GO}": f"if {MAY_GO}"}),
    Wrong("returns_the_node", Promise.IS_ID, {"min(may_go)[1]": "min(may_go)"}),
    Wrong("the_oldest_of_all", Promise.ONLY_LEAVES, {MAY_GO: "not lock"}),
    Wrong("whoever_reads_it", Promise.LOCKED_STAYS, {MAY_GO: "not children"}),
    Wrong("takes_the_id_for_its_age", Promise.LRU, {"[(last, id_)": "[(id_, id_)"}),
    Wrong("raises_where_nothing_may", CommonPromise.ANSWERS, {" if may_go else None": ""}),
    Wrong("throws_out", CommonPromise.UNCHANGED, {"    return": "    nodes.clear()\n    return"}),
]
