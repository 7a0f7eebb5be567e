"""The token sequences of a log's requests, and of its cached prefixes, up to a moment.

Where token ids are unknown (-1), each token of a block is replaced by the block's hash, if the log has
it: hashes cover all tokens before them, so equal hashes mean equal prefixes.
"""

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.state import ROOT, NodeState, common_length

Tokens = list[int | str]


class Prompts:
    """Sequences by request id. Feed `note` every event after it was applied.

    whole    the prompt of each request of the log, as it arrived
    so_far   prompt and output of each request that has arrived, also after its end
    texts    one piece per token of `so_far`
    arrived  the requests that the log has in the queue, from their arrival on
    begun    the requests that were admitted, and samples that forked off
    keys     the adapter and salt of each request that has one of them
    """

    def __init__(self) -> None:
        self.whole: dict[int, Tokens] = {}
        self.so_far: dict[int, Tokens] = {}
        self.texts: dict[int, list[str]] = {}
        self.arrived: set[int] = set()
        self.begun: set[int] = set()
        self.keys: dict[int, list[str]] = {}
        self._parents: dict[int, int] = {}
        self._node_tokens: dict[int, Tokens] = {}

    @classmethod
    def of(cls, log: EventLog) -> "Prompts":
        """Return the prompts of a log, before its first event."""
        prompts, size = cls(), 1
        for event in log.each(v.RunStarted, v.RequestArrived, v.Forked, v.Keyframe):
            match event:
                case v.RunStarted():
                    size = event.settings["block_size"]
                case v.RequestArrived():
                    prompts.whole[event.request] = _with_hashes(event, size)
                    prompts.keys[event.request] = event.extra_key
                    for sample in range(1, event.n):
                        prompts._parents[event.request + sample] = event.request
                case v.Forked():
                    prompts._parents[event.request] = prompts.root(event.parent)
                case v.Keyframe():
                    size = event.state.settings["block_size"]
                    for one in event.state.requests:
                        prompts.whole[one.id] = [*one.tokens[: one.prompt_length]]
                        prompts._parents[one.id] = one.root
                        prompts.keys[one.id] = one.extra_key
        return prompts

    def root(self, request: int) -> int:
        """Return the request that a sample forks off from, or the request itself."""
        return self._parents.get(request, request)

    def note(self, event: v.Event, state: State) -> None:
        """Note an event that was applied to `state`."""
        match event:
            case v.Keyframe():
                self.arrived = {one for one in state.waiting if not state.requests[one].preemptions}
                self.begun = set(state.requests) - self.arrived
                for request in state.requests.values():
                    self.so_far[request.id] = list(request.tokens)
                    self.texts[request.id] = list(request.texts)
            case v.RequestArrived():
                self.arrived.add(event.request)
                self.so_far[event.request] = [*self.whole[event.request], *event.output]
                self.texts[event.request] = list(event.texts)
            case v.Admitted():
                self.begun.add(event.request)
            case v.Forked():
                self.begun.add(event.request)
                self.so_far[event.request] = list(self.so_far[event.parent])
                self.texts[event.request] = list(self.texts[event.parent])
            case v.StepFinished():
                for row in event.tokens:
                    self.so_far[row.request] += row.ids
                    self.texts[row.request] += row.texts
            case v.BlocksStored() if -1 in state.requests[event.request].tokens:
                size, tokens = state.block_size, self.so_far[event.request]
                depth = sum(1 for _ in _above(event.parent, state))
                for index, node in enumerate(event.nodes, start=depth):
                    self._node_tokens[node] = tokens[index * size : (index + 1) * size]

    def of_node(self, node: NodeState) -> Tokens:
        """Return the tokens of a node's edge."""
        return self._node_tokens.get(node.id, []) or list(node.tokens)

    def path(self, node: int, state: State) -> Tokens:
        """Return all tokens from the root to the end of a node's edge."""
        edges = [self.of_node(state.nodes[one]) for one in _above(node, state)]
        return [token for edge in reversed(edges) for token in edge]

    def finds(self, request: int, node: int, state: State) -> bool:
        """Return whether a request may find a node: it has the adapter and salt of that prefix."""
        return state.prefix_key(node) == self.keys.get(self.root(request), [])

    def have_one_key(self, one: int, other: int) -> bool:
        """Return whether two requests may share KV: they have the same adapter and salt."""
        return self.keys.get(self.root(one)) == self.keys.get(self.root(other))

    def nearest(
        self, request: int, own: Tokens, *, may_share: bool = True
    ) -> tuple[int | None, int]:
        """Return the other request with the longest common prefix (the last of several), and its
        length.

        Only requests that were admitted earlier count, and of those the ones that may share KV with the
        request, or may not.
        """
        best, length = None, 0
        for other, tokens in self.so_far.items():
            if other not in self.begun or self.root(other) == request:
                continue
            if self.have_one_key(request, other) != may_share:
                continue
            agree = common_length(tokens, own)
            if agree and agree >= length:
                best, length = other, agree
        return best, length

    @staticmethod
    def is_known(tokens: Tokens) -> bool:
        """Return whether none of the tokens is unknown."""
        return -1 not in tokens


def _above(node: int, state: State) -> list[int]:
    """Return a node and those above it, without the root."""
    path = []
    while node != ROOT:
        path.append(node)
        node = state.nodes[node].parent
    return path


def _with_hashes(event: v.RequestArrived, size: int) -> Tokens:
    """Return a prompt; unknown tokens are replaced by the hashes of their blocks."""
    known: Tokens = [one for one in event.hashes for _ in range(size)]
    return known + event.prompt[len(known) :]
