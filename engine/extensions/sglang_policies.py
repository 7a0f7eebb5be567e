"""Two more policies of SGLang, for its scheduler: `Engine(..., policy=DepthFirst())`.

Source: SGLang's `python/sglang/srt/managers/schedule_policy.py` (`_sort_by_longest_output`) and
`mem_cache/base_prefix_cache.py` (`_dfs_weight_order`).
"""

from collections import defaultdict

from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.cache.radix_tree import RadixNode, RadixTree
from engine.core.request import Request
from engine.core.scheduling.policy import Policy


class LongestOutputFirst(Policy):
    """The request with the largest `max_tokens` first."""

    name = "lof"

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return (minus max_tokens)."""
        return (-request.params.max_tokens,)


class DepthFirst(Policy):
    """The order of a depth-first search, so that requests with a common prefix follow each other.

    Of a node's children, the one comes first below which the most requests wait, and the requests
    whose prefix ends at a node come after those below it.
    """

    name = "dfs-weight"

    def sort(self, waiting: list[Request], tree: RadixTree) -> None:
        """Sort waiting requests in place."""
        ends, weights = defaultdict[int, list[Request]](list), defaultdict[int, int](int)
        for request in waiting:
            node = tree.match(request.tokens, len(request.tokens) // tree.block_size).node
            ends[node.id].append(request)
            for above in (*tree.path(node), tree.root):
                weights[above.id] += 1
        waiting.clear()
        stack: list[tuple[RadixNode, bool]] = [(tree.root, False)]
        while stack:
            node, visited = stack.pop()
            if visited:
                waiting += ends[node.id]
                continue
            children = sorted(node.children.values(), key=lambda child: -weights[child.id])
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children)]


SGLANG_POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (LongestOutputFirst, DepthFirst)
}
