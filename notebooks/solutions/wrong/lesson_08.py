"""Lesson 08: plausible wrong parts and the promises that they break."""

from checks.broken import CommonPromise
from checks.lesson_08 import Promise

MAY_GO = "not children + lock"

WRONG = {
    Promise.CHOOSES_ONE: {
        "gives_up_early": {"if may_go else": "if may_go and not any(row[2] for row in nodes) else"}
    },
    Promise.ROOT_STAYS: {"the_root_as_well": {f"if id_ and {MAY_GO}": f"if {MAY_GO}"}},
    Promise.IS_ID: {"returns_the_node": {"min(may_go)[1]": "min(may_go)"}},
    Promise.ONLY_LEAVES: {"the_oldest_of_all": {MAY_GO: "not lock"}},
    Promise.LOCKED_STAYS: {"whoever_reads_it": {MAY_GO: "not children"}},
    Promise.LRU: {"takes_the_id_for_its_age": {"[(last, id_)": "[(id_, id_)"}},
    CommonPromise.ANSWERS: {"raises_where_nothing_may": {" if may_go else None": ""}},
    CommonPromise.UNCHANGED: {"throws_out": {"    return": "    nodes.clear()\n    return"}},
}
