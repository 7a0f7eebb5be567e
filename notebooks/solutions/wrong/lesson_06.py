"""Lesson 06: plausible wrong parts and the promises that they break."""

from checks.lesson_06 import Promise

KEY = "tuple(upper.tokens[:block_size])"
MARKS = "upper.lock_ref, upper.last = node.lock_ref, node.last"
LOWER = "node.tokens, node.blocks, node.parent = node.tokens[cut:], node.blocks[at:], upper"


def after(code: str) -> dict[str, str]:
    """The solution, with a line before its last one."""
    return {"    return upper": f"    {code}\n    return upper"}


WRONG = {
    Promise.UPPER: {
        "returns_both": {"return upper": "return upper, node"},
    },
    Promise.NEW_IS_UPPER: {"the_new_one_is_below": {"return upper": "return node"}},
    Promise.NEW_ID: {"counts_on": {"RadixNode(new_id": "RadixNode(new_id + 1"}},
    Promise.TOKENS_WITH_BLOCKS: {"cuts_tokens_like_blocks": {"at * block_size": "at"}},
    Promise.UPPER_EDGE: {
        "one_block_more": {
            "[:cut], node.blocks[:at]": "[: cut + block_size], node.blocks[: at + 1]"
        }
    },
    Promise.LISTS: {
        "tuples_of_tokens": after("upper.tokens = tuple(upper.tokens)"),
        "parent_gets_a_list": after("parent.children = [upper]"),
        "children_below_as_a_list": after("node.children = list(node.children)"),
    },
    Promise.UPPER_PARENT: {"an_orphan": {"RadixNode(new_id, parent": "RadixNode(new_id, None"}},
    Promise.FROM_ABOVE: {"parent_leads_past_it": after(f"parent.children[{KEY}] = node")},
    Promise.SIBLINGS: {"parent_keeps_both": after("parent.children |= upper.children")},
    Promise.ONE_CHILD: {
        "takes_the_children_along": after("upper.children |= node.children"),
    },
    Promise.CHILD_KEY: {"finds_it_under_the_old_key": after(f"upper.children = {{{KEY}: node}}")},
    Promise.LOWER_PARENT: {
        "lower_keeps_its_parent": {
            LOWER: "node.tokens, node.blocks = node.tokens[cut:], node.blocks[at:]"
        }
    },
    Promise.LOWER_EDGE: {
        "lower_keeps_everything": after(
            "node.tokens, node.blocks = upper.tokens + node.tokens, upper.blocks + node.blocks"
        )
    },
    Promise.CHILDREN: {"empties_the_lower_node": after("node.children = {}")},
    Promise.CHILD_PARENT: {
        "rebuilds_and_forgets_the_children": {
            "] = node": "] = replace(node)",
            "from engine": "from dataclasses import replace\n\nfrom engine",
        }
    },
    Promise.LOWER_LOCK: {"moves_the_lock_up": after("node.lock_ref = 0")},
    Promise.UPPER_LOCK: {
        "nobody_protects_it": {MARKS: "upper.last = node.last"},
        "locks_what_nobody_reads": {
            MARKS: MARKS.replace("lock_ref,", "lock_ref or 1,").replace(
                "upper.lock_ref or 1", "upper.lock_ref"
            )
        },
    },
    Promise.UPPER_LAST: {"new_ones_come_fresh": {MARKS: "upper.lock_ref = node.lock_ref"}},
}
