"""Which blocks of a log's requests held equal tokens, as far as its prefix cache shows it."""

from collections import defaultdict

from engine.core.log import vocabulary as v

_FIRST = 1  # the first invented token; 0 ends an output


class Sharing:
    """Which blocks of which requests hold equal tokens.

    Each block of a request's sequence has a content, a number. `_join` merges two contents that the log
    shows to be equal (union-find).
    """

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._same: list[int] = []  # content -> an equal one, itself if it stands for them all
        self._contents: defaultdict[int, list[int]] = defaultdict(list)  # of a request, by index
        self._of_block: dict[int, int] = {}  # physical block -> content, once it is cached
        self._of_node: dict[int, int] = {}  # node of the hash cache -> content
        self._depth = {0: 0}  # of a node of the hash cache, in blocks
        self._first: dict[int, list[int]] = {}  # node in the cache when the log began -> contents
        self._cached = defaultdict[int, int](int)  # request -> blocks in the radix tree
        self._prompt_tokens: dict[int, int] = {}
        # content -> how many of its first tokens are those of another content, and which one
        self._begins: dict[int, tuple[int, int]] = {}

    @property
    def next_token(self) -> int:
        """A bound on the ids of all tokens so far."""
        return _FIRST + len(self._same) * self._size

    def token(self, request: int, position: int) -> int:
        """Return the token of a request at a position."""
        index, offset = divmod(position, self._size)
        content = self._find(self._content(request, index))
        path = list[int]()
        while content not in path and offset < self._begins.get(content, (0, 0))[0]:
            path.append(content)
            content = self._find(self._begins[content][1])
        if content in path:  # samples with equal outputs: each begins as the other does
            content = min(path[path.index(content) :])
        return _FIRST + content * self._size + offset

    def note(self, event: v.Event) -> None:
        """Note what an event says about equal blocks."""
        match event:
            case v.Keyframe():
                self._begin(event)
            case v.RequestArrived():
                self._prompt_tokens[event.request] = len(event.tokens)
            case v.Admitted():
                self._equal(event.request, 0, event.blocks)
                self._cached[event.request] = len(event.blocks)
            case v.BlocksStored():
                depth = self._depth[event.parent]
                for index, (node, block) in enumerate(
                    zip(event.nodes, event.blocks, strict=True), depth
                ):
                    content = self._content(event.request, index)
                    self._join(content, self._of_node.setdefault(node, content))
                    self._of_block[block] = content
                    self._depth[node] = index + 1
            case v.RadixInserted() | v.RadixExtended():
                for index, block in enumerate(event.blocks, self._cached[event.request]):
                    self._of_block[block] = self._content(event.request, index)
                self._cached[event.request] += len(event.blocks)
            case v.RadixJoined():
                self._equal(event.request, self._cached[event.request], event.blocks)
                self._cached[event.request] += len(event.blocks)
            case v.Forked():
                self._fork(event.parent, event.request)

    def cached_tokens(self, node: v.NodeRecord) -> list[int]:
        """Return the tokens of a node's blocks, which were in the cache when the log began."""
        contents = map(self._find, self._first[node.id])
        return [_FIRST + one * self._size + at for one in contents for at in range(self._size)]

    def _begin(self, keyframe: v.Keyframe) -> None:
        """Note the cached blocks of a log that begins in the middle, and its requests."""
        state = keyframe.state
        nodes = {one.id: one for one in state.nodes}
        for node in nodes.values():
            contents = [self._new() for _ in range(len(node.tokens) // self._size)]
            self._first[node.id] = contents
            self._of_block |= zip(node.blocks, contents, strict=False)
            if len(contents) == 1:  # with the hash cache, always
                self._of_node[node.id] = contents[0]
                self._of_block |= dict.fromkeys(node.copies, contents[0])
        for node in nodes.values():
            depth, at = 0, node
            while at.parent in nodes:
                depth, at = depth + len(self._first[at.id]), nodes[at.parent]
            self._depth[node.id] = depth
        for one in state.requests:
            self._prompt_tokens[one.id] = one.prompt_length
            self._cached[one.id] = self._depth[one.last_node]
            self._equal(one.id, 0, one.block_table)

    def _equal(self, request: int, first: int, blocks: list[int]) -> None:
        for index, block in enumerate(blocks, first):
            if block in self._of_block:  # else a message is missing
                self._join(self._content(request, index), self._of_block[block])

    def _fork(self, parent: int, sample: int) -> None:
        """Note that a sample has its parent's prompt."""
        self._cached[sample] = self._cached[parent]
        self._prompt_tokens[sample] = self._prompt_tokens[parent]
        full, rest = divmod(self._prompt_tokens[parent], self._size)
        self._content(parent, full)
        self._contents[sample] = self._contents[parent][:full]
        if rest:
            self._begins[self._content(sample, full)] = rest, self._contents[parent][full]

    def _content(self, request: int, index: int) -> int:
        contents = self._contents[request]
        while len(contents) <= index:
            contents.append(self._new())
        return contents[index]

    def _new(self) -> int:
        self._same.append(len(self._same))
        return self._same[-1]

    def _find(self, content: int) -> int:
        while self._same[content] != content:
            self._same[content] = content = self._same[self._same[content]]
        return content

    def _join(self, one: int, other: int) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._same[one] = other
            if one in self._begins:
                self._begins.setdefault(other, self._begins.pop(one))
