"""Lesson 06: plausible wrong parts and the promises that they break."""

from checks.lesson_06 import Promise
from tests.lessons.wrong import Wrong

KEY = "tuple(upper.tokens[:block_size])"
MARKS = "upper.lock_ref, upper.last = node.lock_ref, node.last"
LOWER = "node.tokens, node.blocks, node.parent = node.tokens[cut:], node.blocks[at:], upper"


def after(code: str) -> dict[str, str]:
    """The solution, with a line before its last one."""
    return {"    return upper": f"    {code}\n    return upper"}


WRONG = [
    Wrong("returns_nothing_after_work", Promise.UPPER, {"return upper": "return None"}),
    Wrong("returns_both", Promise.UPPER, {"return upper": "return upper, node"}),
    Wrong("the_new_one_is_below", Promise.NEW_IS_UPPER, {"return upper": "return node"}),
    Wrong("counts_on", Promise.NEW_ID, {"RadixNode(new_id": "RadixNode(new_id + 1"}),
    Wrong("cuts_tokens_like_blocks", Promise.TOKENS_WITH_BLOCKS, {"at * block_size": "at"}),
    Wrong(
        "one_block_more",
        Promise.UPPER_EDGE,
        {"[:cut], node.blocks[:at]": "[: cut + block_size], node.blocks[: at + 1]"},
    ),
    Wrong("tuples_of_tokens", Promise.LISTS, after("upper.tokens = tuple(upper.tokens)")),
    Wrong("parent_gets_a_list", Promise.LISTS, after("parent.children = [upper]")),
    Wrong("children_below_as_a_list", Promise.LISTS, after("node.children = list(node.children)")),
    Wrong(
        "an_orphan", Promise.UPPER_PARENT, {"RadixNode(new_id, parent": "RadixNode(new_id, None"}
    ),
    Wrong("parent_leads_past_it", Promise.FROM_ABOVE, after(f"parent.children[{KEY}] = node")),
    Wrong("parent_keeps_both", Promise.SIBLINGS, after("parent.children |= upper.children")),
    Wrong("forgets_what_is_below", Promise.ONE_CHILD, after("upper.children = {}")),
    Wrong("takes_the_children_along", Promise.ONE_CHILD, after("upper.children |= node.children")),
    Wrong(
        "finds_it_under_the_old_key", Promise.CHILD_KEY, after(f"upper.children = {{{KEY}: node}}")
    ),
    Wrong(
        "lower_keeps_its_parent",
        Promise.LOWER_PARENT,
        {LOWER: "node.tokens, node.blocks = node.tokens[cut:], node.blocks[at:]"},
    ),
    Wrong(
        "lower_keeps_everything",
        Promise.LOWER_EDGE,
        after("node.tokens, node.blocks = upper.tokens + node.tokens, upper.blocks + node.blocks"),
    ),
    Wrong("empties_the_lower_node", Promise.CHILDREN, after("node.children = {}")),
    Wrong(
        "rebuilds_and_forgets_the_children",
        Promise.CHILD_PARENT,
        {
            "] = node": "] = replace(node)",
            "from engine": "from dataclasses import replace\n\nfrom engine",
        },
    ),
    Wrong("moves_the_lock_up", Promise.LOWER_LOCK, after("node.lock_ref = 0")),
    Wrong("nobody_protects_it", Promise.UPPER_LOCK, {MARKS: "upper.last = node.last"}),
    Wrong(
        "locks_what_nobody_reads",
        Promise.UPPER_LOCK,
        {
            MARKS: MARKS.replace("lock_ref,", "lock_ref or 1,").replace(
                "upper.lock_ref or 1", "upper.lock_ref"
            )
        },
    ),
    Wrong("new_ones_come_fresh", Promise.UPPER_LAST, {MARKS: "upper.lock_ref = node.lock_ref"}),
]
