"""Lesson 06: plausible wrong parts, the promises that they break, and facts of the messages."""

from dataclasses import replace

from checks.lesson_06 import Promise
from engine.cache.radix_tree import RadixNode
from solutions.lesson_06 import split as solution


def cut_as_asked(node, at, tokens, block_size, new_id):
    """Right, except for what a wrong solution changes afterwards or passes in."""
    parent = node.parent
    upper = RadixNode(
        new_id,
        parent,
        node.tokens[:tokens],
        node.blocks[:at],
        lock_ref=node.lock_ref,
        last=node.last,
    )
    parent.children[tuple(node.tokens[:block_size])] = upper
    node.tokens, node.blocks, node.parent = node.tokens[tokens:], node.blocks[at:], upper
    upper.children[tuple(node.tokens[:block_size])] = node
    return upper


def nobody_protects_it(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.lock_ref = 0
    return upper


def parent_leads_past_it(node, at, block_size, new_id):
    parent, key = node.parent, tuple(node.tokens[:block_size])
    upper = solution(node, at, block_size, new_id)
    parent.children[key] = node
    return upper


def cuts_tokens_like_blocks(node, at, block_size, new_id):
    return cut_as_asked(node, at, at, block_size, new_id)


def lower_keeps_its_parent(node, at, block_size, new_id):
    parent = node.parent
    upper = solution(node, at, block_size, new_id)
    node.parent = parent
    return upper


def forgets_what_is_below(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children = {}
    return upper


def found_by_all_its_tokens(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children = {tuple(node.tokens): node}
    return upper


def lower_keeps_everything(node, at, block_size, new_id):
    tokens, blocks = node.tokens, node.blocks
    upper = solution(node, at, block_size, new_id)
    node.tokens, node.blocks = tokens, blocks
    return upper


def the_new_one_is_below(node, at, block_size, new_id):
    solution(node, at, block_size, new_id)
    return node


def new_ones_come_fresh(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.last = 0
    return upper


def takes_the_children_along(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children |= node.children
    return upper


def one_block_more(node, at, block_size, new_id):
    return solution(node, at + 1, block_size, new_id)


def rebuilds_and_forgets_the_children(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    [(key, old)] = upper.children.items()
    upper.children[key] = replace(old)
    return upper


def a_ring(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.parent.parent = upper
    upper.children[(-1,)] = upper
    return upper


def returns_nothing_after_work(node, at, block_size, new_id):
    solution(node, at, block_size, new_id)


def returns_both(node, at, block_size, new_id):
    return solution(node, at, block_size, new_id), node


def parent_keeps_both(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.parent.children[tuple(node.tokens[:block_size])] = node
    return upper


def tuples_of_tokens(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.tokens, node.tokens = tuple(upper.tokens), tuple(node.tokens)
    return upper


def a_list_of_children(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.children = [node]
    return upper


def children_below_as_a_list(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    node.children = list(node.children.values())
    return upper


def parent_gets_a_list(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    upper.parent.children = [upper]
    return upper


def moves_the_lock_up(node, at, block_size, new_id):
    upper = solution(node, at, block_size, new_id)
    node.lock_ref = 0
    return upper


def finds_it_under_the_old_key(node, at, block_size, new_id):
    key = tuple(node.tokens[:block_size])
    upper = solution(node, at, block_size, new_id)
    upper.children = {key: node}
    return upper


WRONG = [
    (parent_keeps_both, Promise.SIBLINGS, ["(10,)", "(11,)", 1]),
    (tuples_of_tokens, Promise.LISTS, ["tokens", "tuple", "list"]),
    (a_list_of_children, Promise.LISTS, ["children", "list", "dict"]),
    (children_below_as_a_list, Promise.LISTS, ["children", 7, "list", "dict"]),
    (parent_gets_a_list, Promise.LISTS, ["the root", "list", "dict"]),
    (moves_the_lock_up, Promise.LOWER_LOCK, [7, 0, 1]),
    (finds_it_under_the_old_key, Promise.CHILD_KEY, ["(10,)", 11]),
    (nobody_protects_it, Promise.UPPER_LOCK, [7, 10, 11, 20, 21, 1, 0]),
    (parent_leads_past_it, Promise.FROM_ABOVE, [10, 7]),
    (cuts_tokens_like_blocks, Promise.TOKENS_WITH_BLOCKS, [2, 1]),
    (lower_keeps_its_parent, Promise.LOWER_PARENT, [7]),
    (forgets_what_is_below, Promise.ONE_CHILD, [2]),
    (found_by_all_its_tokens, Promise.CHILD_KEY, []),
    (lower_keeps_everything, Promise.LOWER_EDGE, []),
    (the_new_one_is_below, Promise.NEW_IS_UPPER, [7]),
    (new_ones_come_fresh, Promise.UPPER_LAST, [0]),
    (takes_the_children_along, Promise.ONE_CHILD, []),
    (one_block_more, Promise.UPPER_EDGE, [2, 1, 20]),
    (rebuilds_and_forgets_the_children, Promise.CHILD_PARENT, []),
    (a_ring, Promise.ONE_CHILD, []),
    (returns_both, Promise.UPPER, []),
    (returns_nothing_after_work, Promise.UPPER, []),
]
