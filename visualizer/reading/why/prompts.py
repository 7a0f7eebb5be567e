"""The token sequences of a log's requests, and of its cached prefixes, up to a moment.

Where token ids are unknown (-1), each token of a block is replaced by the block's hash, if the log has
it: hashes cover all tokens before them, so equal hashes mean equal prefixes.
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import EventLog
from engine.core.log.state import ROOT, NodeState, common_length
from visualizer.indexed.facts import Request

Tokens = list[int | str]


class Similar(NamedTuple):
    """What a request that has ended has in common with the one that is asked about.

    agree, number   how many first tokens, and which of all arrivals it was: the later of two is nearer
    is_longer       whether more tokens follow, and `text`, that of the first of them
    """

    agree: int
    number: int
    request: int
    is_longer: bool
    text: str


class Prompts:
    """Sequences by request id, for a question about one of them. Feed `note` every event after it was
    applied.

    asked    the request; of a sample, the one that it forks off from
    own      its prompt as it arrives
    so_far   prompt and output of each request that has arrived and has not ended
    texts    one piece per token of `so_far`
    arrived  the requests that the log has in the queue, from their arrival on
    begun    the requests that were admitted, and samples that forked off
    keys     the adapter and salt of each request that has one of them
    """

    def __init__(self, request: int) -> None:
        self.asked, self.own = request, Tokens()
        self.so_far: dict[int, Tokens] = {}
        self.texts: dict[int, list[str]] = {}
        self.arrived: set[int] = set()
        self.begun: set[int] = set()
        self.keys: dict[int, list[str]] = {}
        self._arrivals, self._numbers = 0, dict[int, int]()  # which of all arrivals each was
        self._nearest: dict[bool, Similar] = {}  # of those that have ended, by whether KV is shared
        self._parents: dict[int, int] = {}
        self._node_tokens: dict[int, Tokens] = {}

    @classmethod
    def of(cls, log: EventLog, request: int) -> "Prompts":
        """Return the prompts of a log, before its first event."""
        prompts, size = cls(request), 1
        for event in log.each(v.RunStarted, v.RequestArrived, v.Keyframe):
            match event:
                case v.RunStarted():
                    size = event.settings["block_size"]
                case v.RequestArrived() if event.request <= request < event.request + event.n:
                    prompts.asked, prompts.own = (
                        event.request,
                        with_hashes(event, event.prompt, size),
                    )
                    prompts._set_key(event.request, event.extra_key)
                    break
                case v.Keyframe():
                    size = event.state.settings["block_size"]
                    for one in event.state.requests:
                        if one.id <= request < one.id + max(1, one.num_seqs):
                            prompts.asked = one.root
                    for one in event.state.requests:
                        if one.id == prompts.asked:
                            prompts.own = [*one.tokens[: one.prompt_length]]
                            prompts._set_key(one.id, one.extra_key)
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
                    self._add(request.id, list(request.tokens), list(request.texts))
                    self._parents[request.id] = request.root
                    for one in (request.id, request.root):
                        self._set_key(one, request.extra_key)
            case v.RequestArrived():
                self.arrived.add(event.request)
                tokens = [*with_hashes(event, event.prompt, state.block_size), *event.output]
                self._add(event.request, tokens, list(event.texts))
                self._set_key(event.request, event.extra_key)
            case v.Admitted():
                self.begun.add(event.request)
                if -1 in (own := state.requests[event.request]).tokens:
                    # Who computed them may have no hash of them, because they are its output.
                    path = _above(event.node, state)[::-1][: own.prompt_length // state.block_size]
                    nodes = takewhile(lambda one: state.nodes[one].tokens[:1] == [-1], path)
                    self._note_blocks(event.request, nodes, 0, state)
            case v.Forked():
                self.begun.add(event.request)
                self._parents[event.request] = self.root(event.parent)
                tokens, texts = self.so_far[event.parent], self.texts[event.parent]
                self._add(event.request, list(tokens), list(texts))
            case v.StepFinished():
                for row in event.tokens:
                    self.so_far[row.request] += row.ids
                    self.texts[row.request] += row.texts
            case v.RequestFinished():
                self._end(event.request)
            case v.BlocksStored() if -1 in state.requests[event.request].tokens:
                above = _above(event.parent, state)
                self._note_blocks(event.request, event.nodes, len(above), state)

    def _note_blocks(self, request: int, nodes: Iterable[int], first: int, state: State) -> None:
        """Note what nodes have: the blocks of a request from its block `first` on."""
        size, tokens = state.block_size, self.so_far[request]
        for index, node in enumerate(nodes, start=first):
            self._node_tokens[node] = tokens[index * size : (index + 1) * size]

    @classmethod
    def at(
        cls,
        asked: Request,
        state: State,
        ended: Iterable[tuple[bool, Similar]],
        living: Mapping[int, tuple[int, Tokens]],
        nodes: Mapping[int, int],
    ) -> "Prompts":
        """Return the prompts at a moment in the middle of a log.

        asked   the request; it has not been admitted
        ended   of other requests, what they have in common with it, and whether they may share KV
        living  by request: which of all arrivals it was, and its prompt if its blocks have hashes
        nodes   if its blocks have hashes: where in its prompt the nodes begin that have one of them
        """
        prompts, size = cls(asked.id), state.block_size
        prompts.own = with_hashes(asked, asked.tokens[: asked.prompt_length], size)
        prompts.note(state.keyframe(), state)
        prompts._set_key(asked.id, asked.extra_key)
        for request, (number, prompt) in living.items():
            prompts._numbers[request] = number
            if asked.hashes:
                tokens = prompts.so_far[request]
                length = state.requests[request].prompt_length
                prompts.so_far[request] = [*prompt, *tokens[length:]]
        if asked.hashes:
            prompts._node_tokens = {one.id: [""] * size for one in state.nodes.values()}
            for node in nodes.keys() & state.nodes.keys():
                prompts._node_tokens[node] = prompts.own[nodes[node] : nodes[node] + size]
        for shares, similar in ended:
            prompts._nearest[shares] = max(similar, prompts._nearest.get(shares, similar))
        numbers = [*prompts._numbers.values(), *(one.number for one in prompts._nearest.values())]
        prompts._arrivals = max(numbers, default=0)
        return prompts

    def _set_key(self, request: int, key: list[str]) -> None:
        if key:
            self.keys[request] = key

    def _add(self, request: int, tokens: Tokens, texts: list[str]) -> None:
        self._numbers[request] = self._arrivals = self._arrivals + 1
        self.so_far[request], self.texts[request] = tokens, texts

    def _end(self, request: int) -> None:
        """Keep of a request only what it has in common with the one that is asked about."""
        tokens, texts = self.so_far.pop(request), self.texts.pop(request)
        number = self._numbers.pop(request)
        if request in self.begun and self.root(request) != self.asked:
            agree = common_length(tokens, self.own)
            text = texts[agree] if len(texts) > agree else ""
            similar = Similar(agree, number, request, len(tokens) > agree, text)
            shares = self.have_one_key(self.asked, request)
            if agree:
                self._nearest[shares] = max(similar, self._nearest.get(shares, similar))
        self.begun.discard(request)

    def of_node(self, node: NodeState) -> Tokens:
        """Return the tokens of a node's edge."""
        return self._node_tokens.get(node.id, []) or list(node.tokens)

    def path(self, node: int, state: State) -> Tokens:
        """Return all tokens from the root to the end of a node's edge."""
        above = _above(node, state)
        edges = [self.of_node(state.nodes[one]) for one in above]
        begin, end = (len(above) - 1) * state.block_size, len(above) * state.block_size
        if edges and edges[0] == self.own[begin:end] and isinstance(self.own[begin], str):
            return self.own[:end]  # equal hashes mean equal prefixes
        return [token for edge in reversed(edges) for token in edge]

    def finds(self, node: int, state: State) -> bool:
        """Return whether the request may find a node: it has the adapter and salt of that prefix."""
        return state.prefix_key(node) == self.keys.get(self.asked, [])

    def have_one_key(self, one: int, other: int) -> bool:
        """Return whether two requests may share KV: they have the same adapter and salt."""
        return self.keys.get(self.root(one), []) == self.keys.get(self.root(other), [])

    def nearest(
        self, request: int, own: Tokens, *, may_share: bool = True
    ) -> tuple[int | None, int]:
        """Return the other request with the longest common prefix (the last of several), and its
        length.

        Only requests that were admitted earlier count, and of those the ones that may share KV with the
        request, or may not.
        """
        best = self._nearest.get(may_share)
        length, number = (best.agree, best.number) if best else (0, 0)
        nearest = best.request if best else None
        for other, tokens in self.so_far.items():
            if other not in self.begun or self.root(other) == request:
                continue
            if self.have_one_key(request, other) != may_share:
                continue
            agree = common_length(tokens, own)
            if agree and (agree, self._numbers[other]) > (length, number):
                nearest, length, number = other, agree, self._numbers[other]
        return nearest, length

    def after(self, request: int, agree: int) -> tuple[bool, str]:
        """Return whether a request that `nearest` found has more tokens than `agree`, and the text of
        the next one.
        """
        if request in self.so_far:
            texts = self.texts[request]
            return len(self.so_far[request]) > agree, texts[agree] if len(texts) > agree else ""
        [ended] = [one for one in self._nearest.values() if one.request == request]
        return ended.is_longer, ended.text

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


def with_hashes(one: v.RequestArrived | Request, tokens: list[int], size: int) -> Tokens:
    """Return the tokens of a request; the first ones are replaced by the hashes of their blocks."""
    known: Tokens = [hash_ for hash_ in one.hashes for _ in range(size)]
    return known + tokens[len(known) :]
