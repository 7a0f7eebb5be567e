"""Lesson 06: split an edge of the radix tree."""

from engine.core.cache.radix_tree import RadixNode


def split(node: RadixNode, at: int, block_size: int, new_id: int) -> RadixNode:
    """Insert a new node between the parent and the old one; it takes the beginning of the edge."""
    parent, cut = node.parent, at * block_size
    assert parent is not None
    upper = RadixNode(new_id, parent, node.tokens[:cut], node.blocks[:at])
    upper.lock_ref, upper.last = node.lock_ref, node.last
    parent.children[tuple(upper.tokens[:block_size])] = upper
    node.tokens, node.blocks, node.parent = node.tokens[cut:], node.blocks[at:], upper
    upper.children[tuple(node.tokens[:block_size])] = node
    return upper
