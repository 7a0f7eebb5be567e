"""The fold: events in, the engine's state out.

`State().apply(event)` for events 0..k gives exactly the engine's state after event k. All views of a
run read this state and never an engine object. It shares no code with the engine, and neither does
`Engine.snapshot()`, which reads the live objects: a test compares the two after every event of random
workloads. `visualizer/frontend/src/model/fold.ts` is the same fold for the browser.

`state.py` defines the fields. Three helpers do most of the work: `_allocate` takes blocks off the free
stack, `_dereference` drops references, and `_move_lock` counts live readers along a path of the tree.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, get_args

from msgspec.structs import replace

from engine.core.log import vocabulary as v
from engine.core.log.expert_loads import summed
from engine.core.log.state import ROOT, EngineState, NodeState


class State(EngineState):
    """The state of an engine, with one method for each kind of event."""

    def apply(self, event: v.Event) -> None:
        """Apply the next event. The first must be run_started or a keyframe.

        Raises KeyError, IndexError or ValueError for an event that does not fit the earlier ones.
        """
        self.seq += 1
        _FOLD[type(event)](self, event)

    # Helpers

    def _allocate(self, blocks: list[int]) -> None:
        for block in blocks:
            if block not in self.free:
                raise ValueError(f"event {self.seq} allocates block {block}, which is not free")
            del self.free[block]  # usually the last one, but a learner's pool may choose any block
            self.refs[block] = 1
        if self.has_windows:
            self.window_pages.update(blocks)

    def _dereference(self, blocks: list[int]) -> None:
        """Drop references of a block table. With the hash cache, cached blocks join the queue.

        The first of the blocks that become free is allocated first, or the last one if there is no
        radix tree. The last of the blocks that become evictable is evicted first.
        """
        for block in blocks:
            self.refs[block] -= 1
        order = blocks if self.frees_tail_first else blocks[::-1]
        freed = [block for block in order if not self.refs[block]]
        self.free.update(dict.fromkeys(freed))
        self.window_pages.difference_update(freed)
        if self.is_hashed:
            cached = [
                one for one in reversed(blocks) if self.refs[one] == 1 and one in self.node_of
            ]
            self.queue.update(dict.fromkeys(cached))

    def _attach(self, blocks: list[int]) -> None:
        """Add an owner of cached blocks."""
        self._reference(blocks)
        for block in blocks:
            self.queue.pop(block, None)

    def _path(self, node: int) -> Iterator[NodeState]:
        for _ in self.nodes:  # a path cannot be longer, unless a damaged log has made a circle
            if node == ROOT:
                return
            yield self.nodes[node]
            node = self.nodes[node].parent
        raise ValueError(f"event {self.seq}: node {node} is above itself")

    def _move_lock(self, holder: v.RequestState | v.HoldState, node: int) -> None:
        if self.is_hashed:
            holder.last_node = node
            return
        if holder.last_node == node == ROOT:
            return
        self.tick += 1
        for above in self._path(node):
            above.lock_ref += 1
            above.last = self.tick
        for above in self._path(holder.last_node):
            above.lock_ref -= 1
        holder.last_node = node

    def _release_request(self, request: v.RequestState) -> None:
        self._dereference(request.held_blocks)
        request.block_table, request.group_tables = [], []
        request.num_computed_tokens = 0
        self._move_lock(request, ROOT)

    def _cached_blocks(self, request: v.RequestState) -> int:
        return sum(len(node.blocks) for node in self._path(request.last_node))

    def _first_token(self, request: v.RequestState, blocks: list[int]) -> int:
        """Return where blocks of a request's table begin. Following the tree's path takes longer."""
        return request.block_table.index(blocks[0]) * self.block_size

    # One method per kind of event

    def _run_started(self, event: v.RunStarted) -> None:
        self.settings = dict(event.settings)
        self.classes = dict(event.classes)
        self.source = dict(event.source)
        blocks = self.settings["num_blocks"]
        self.free = OrderedDict.fromkeys(range(blocks - 1, -1, -1))
        self.refs = [0] * blocks
        self.nodes = {ROOT: NodeState(ROOT, -1)}
        if self.settings.get("host_kv_tokens") or self.settings.get("disk_kv_tokens"):
            self.tiers = {"host": OrderedDict(), "disk": OrderedDict()}

    def _request_arrived(self, event: v.RequestArrived) -> None:
        self.requests[event.request] = v.RequestState(
            id=event.request,
            root=event.request,
            sample=event.sample,
            prompt_length=len(event.prompt),
            tokens=event.tokens,
            num_computed_tokens=0,
            block_table=[],
            last_node=ROOT,
            num_seqs=event.n,
            preemptions=0,
            texts=list(event.texts),
            label=event.label,
            priority=event.priority,
            max_tokens=event.max_tokens,
            sampling=event.sampling,
            extra_key=event.extra_key,
        )
        self.waiting[event.request] = None
        if event.output:
            self.waiting.move_to_end(event.request, last=False)

    def _step_started(self, event: v.StepStarted) -> None:
        self.step = event.step

    def _admitted(self, event: v.Admitted) -> None:
        request = self.requests[event.request]
        del self.waiting[event.request]
        self.running.append(event.request)
        self._attach(event.blocks)
        request.block_table = list(event.blocks)
        request.num_computed_tokens = len(event.blocks) * self.block_size
        self._move_lock(request, event.node)
        self._take_lane(event.request)

    def _blocks_allocated(self, event: v.BlocksAllocated) -> None:
        self._allocate(event.blocks)
        self.requests[event.request].block_table += event.blocks

    def _group_table_changed(self, event: v.GroupTableChanged) -> None:
        request, at = self.requests[event.request], event.group - 1
        tables = request.group_tables + [[]] * (event.group - len(request.group_tables))
        table = list(tables[at])
        for index, block in event.changes:
            if not 0 <= index < len(self.refs):
                raise ValueError(f"event {self.seq} changes index {index} of a table")
            table += [-1] * (index + 1 - len(table))
            old, table[index] = table[index], block
            if block >= 0 and self.refs[block]:
                self.refs[block] += 1
            elif block >= 0:
                self._allocate([block])
            if old >= 0:
                self._dereference([old])
        tables[at] = table
        request.group_tables = tables

    def _block_copied(self, event: v.BlockCopied) -> None:
        self._allocate([event.block])
        self.requests[event.request].block_table[event.index] = event.block
        self._dereference([event.source])

    def _preempted(self, event: v.Preempted) -> None:
        request = self.requests[event.request]
        for step, rows in self.plans.items():
            self.plans[step] = [row for row in rows if row.request != event.request]
        self.running.remove(event.request)
        self._release_request(request)
        request.preemptions += 1
        self.waiting[event.request] = None
        if self.settings.get("scheduler", "vllm") == "vllm":  # with SGLang's it goes to the back
            self.waiting.move_to_end(event.request, last=False)

    def _radix_evicted(self, event: v.RadixEvicted) -> None:
        node = self.nodes.pop(event.node)
        self.nodes[node.parent].children.remove(node.id)
        self._dereference(node.blocks)

    def _step_scheduled(self, event: v.StepScheduled) -> None:
        self.plans[self.step] = list(event.rows)

    def _forked(self, event: v.Forked) -> None:
        parent = self.requests[event.parent]
        parent.num_seqs = 1
        sample = replace(
            parent,
            id=event.request,
            sample=event.sample,
            tokens=list(parent.tokens),
            block_table=list(parent.block_table),
            texts=list(parent.texts),
            last_node=ROOT,
            preemptions=0,
        )
        self.requests[sample.id] = sample
        self.running.append(sample.id)
        self._reference(sample.block_table)
        self._move_lock(sample, parent.last_node)
        self._take_lane(sample.id)
        for rows in self.plans.values():
            for row in rows[:]:
                if row.request == parent.id:
                    rows.append(v.ScheduledRow(sample.id, row.start, row.count, list(row.drafts)))

    def _step_finished(self, event: v.StepFinished) -> None:
        for row in self.plans.pop(event.step, []):
            # A row is wasted if its request has ended, or if its step was dropped.
            if row.request in self.requests and row.request not in event.wasted:
                request = self.requests[row.request]
                request.num_computed_tokens = row.start + row.count - len(row.drafts)
        for tokens in event.tokens:
            request = self.requests[tokens.request]
            request.tokens += tokens.ids
            request.texts += tokens.texts
            request.num_computed_tokens += tokens.accepted
        if event.expert_loads:
            self.expert_loads = summed(self.expert_loads, event.expert_loads)

    def _blocks_trimmed(self, event: v.BlocksTrimmed) -> None:
        request = self.requests[event.request]
        self._dereference(request.block_table[event.keep :])
        del request.block_table[event.keep :]
        request.num_computed_tokens = min(request.num_computed_tokens, event.keep * self.block_size)
        path = list(self._path(request.last_node))
        if len(path) > event.keep and self.is_hashed:
            request.last_node = path[-event.keep].id if event.keep else ROOT

    def _radix_split(self, event: v.RadixSplit) -> None:
        lower = self.nodes[event.node]
        cut = event.at * self.block_size
        upper = NodeState(
            id=event.upper,
            parent=lower.parent,
            tokens=lower.tokens[:cut],
            texts=lower.texts[:cut],
            blocks=lower.blocks[: event.at],
            last=lower.last,
            lock_ref=lower.lock_ref,
            children={lower.id},
            source=lower.source,
            extra_key=lower.extra_key,
        )
        lower.extra_key = []
        self.nodes[upper.id] = upper
        siblings = self.nodes[lower.parent].children
        siblings.remove(lower.id)
        siblings.add(upper.id)
        lower.parent = upper.id
        lower.last = self.tick + 1
        lower.tokens, lower.texts = lower.tokens[cut:], lower.texts[cut:]
        lower.blocks = lower.blocks[event.at :]

    def _radix_joined(self, event: v.RadixJoined) -> None:
        request = self.requests[event.request]
        start = self._cached_blocks(request)
        end = start + len(event.blocks)
        own = request.block_table[start:end]
        for source, block in zip(own, event.blocks, strict=True):
            if source in self.window_pages and block not in self.window_pages:
                self.window_pages.remove(source)
                self.window_pages.add(block)
        self._reference(event.blocks)
        self._dereference(own)
        request.block_table[start:end] = event.blocks
        self._move_lock(request, event.node)

    def _radix_inserted(self, event: v.RadixInserted) -> None:
        self.nodes[event.node] = NodeState(event.node, event.parent)
        if event.parent == ROOT:
            self.nodes[event.node].extra_key = self.requests[event.request].extra_key
        self.nodes[event.parent].children.add(event.node)
        self._radix_extended(event)

    def _radix_extended(self, event: v.RadixInserted | v.RadixExtended) -> None:
        request = self.requests[event.request]
        node = self.nodes[event.node]
        start = self._first_token(request, event.blocks)
        end = start + len(event.blocks) * self.block_size
        node.tokens += request.tokens[start:end]
        node.texts += request.texts[start:end]
        node.blocks += event.blocks
        self._reference(event.blocks)
        self._move_lock(request, event.node)

    def _blocks_stored(self, event: v.BlocksStored) -> None:
        request = self.requests[event.request]
        parent, start = event.parent, self._first_token(request, event.blocks)
        for id_, block in zip(event.nodes, event.blocks, strict=True):
            end = start + self.block_size
            if id_ in self.nodes:
                self.nodes[id_].copies.append(block)
            else:
                tokens, texts = request.tokens[start:end], request.texts[start:end]
                key = [] if parent else request.extra_key
                self.nodes[id_] = NodeState(
                    id_, parent, tokens, [block], texts=texts, extra_key=key
                )
                self.nodes[parent].children.add(id_)
            self.node_of[block] = id_
            parent, start = id_, end
        self._reference(event.blocks)
        request.last_node = parent

    def _block_evicted(self, event: v.BlockEvicted) -> None:
        node = self.nodes[event.node]
        self._remove_copy(node, event.block)
        if node.hash:
            return  # the reader chose the number: no memory is known to be free
        del self.queue[event.block]
        self.window_pages.discard(event.block)
        self.free[event.block] = None
        self.free.move_to_end(event.block, last=False)

    def _window_pages_evicted(self, event: v.WindowPagesEvicted) -> None:
        self.window_pages.difference_update(event.blocks)

    def _block_withdrawn(self, event: v.BlockWithdrawn) -> None:
        node = self.nodes[event.node]
        self._remove_copy(node, event.block)
        self.requests[event.request].last_node = node.parent

    def _remove_copy(self, node: NodeState, block: int) -> None:
        copies = [*node.blocks, *node.copies]
        at = copies.index(block)
        del copies[at]
        if node.media is not None:
            del node.media[at]
        node.blocks, node.copies = copies[:1], copies[1:]
        if not node.blocks:
            node.tokens, node.texts = [], []
        while node.id != ROOT and not node.blocks and not node.children:
            del self.nodes[node.id]
            parent = self.nodes[node.parent]
            parent.children.remove(node.id)
            node = parent
        del self.node_of[block]
        self.refs[block] -= 1

    def _request_finished(self, event: v.RequestFinished) -> None:
        request = self.requests.pop(event.request)
        self.waiting.pop(event.request, None)
        if event.request in self.running:
            self.running.remove(event.request)
        if not self.is_hashed and request.num_computed_tokens >= request.prompt_length:
            for above in self._path(request.last_node):
                above.last = self.tick + 1
        self._release_request(request)
        self.lanes.leave(event.request, self.step)

    def _prefix_held(self, event: v.PrefixHeld) -> None:
        hold = v.HoldState(event.hold, list(event.blocks), ROOT, event.label)
        self.holds[hold.id] = hold
        self._attach(hold.block_table)
        self._move_lock(hold, event.node)

    def _prefix_released(self, event: v.PrefixReleased) -> None:
        hold = self.holds.pop(event.hold)
        self._dereference(hold.block_table)
        self._move_lock(hold, ROOT)

    def _prefix_adopted(self, event: v.PrefixAdopted) -> None:
        self._allocate(event.blocks)  # the one reference is the cache's
        without = event.blocks[: len(event.blocks) - event.window_pages]
        self.window_pages.difference_update(without)
        prefix = [block for node in self._path(event.parent) for block in node.blocks[::-1]][::-1]
        size, parent = self.block_size, event.parent
        share = len(event.blocks) // len(event.nodes)  # blocks per node
        for index, id_ in enumerate(event.nodes):
            blocks = event.blocks[index * share : (index + 1) * share]
            cut = slice(index * share * size, (index + 1) * share * size)
            if id_ in self.nodes:
                self.nodes[id_].copies += blocks
            else:
                tokens, texts = event.tokens[cut], event.texts[cut]
                node = NodeState(id_, parent, tokens, blocks, texts=texts, source=event.source)
                self.nodes[id_] = node
                self.nodes[parent].children.add(id_)
            if self.is_hashed:
                self.node_of |= dict.fromkeys(blocks, id_)
            parent = id_
        # An access: as if a request had attached the prefix and released it.
        owner = v.HoldState(0, [*prefix, *event.blocks], ROOT)
        self._attach(owner.block_table)
        self._move_lock(owner, parent)
        self._dereference(owner.block_table)
        self._move_lock(owner, ROOT)

    def _blocks_moved(self, event: v.BlocksMoved) -> None:
        source, target = self.tiers.get(event.source), self.tiers.get(event.target)
        texts = event.texts
        if source is not None:
            texts = [source[slot] for slot in event.blocks]
            if event.reason == "used":
                for slot in reversed(event.blocks):
                    source.move_to_end(slot)
            elif event.reason == "room" or not event.target:
                for slot in event.blocks:
                    del source[slot]
        if event.target == "gpu":
            tokens = len(event.slots) * self.block_size
            self.requests[event.request].num_computed_tokens += tokens
        elif target is not None and target is not source:
            target.update(zip(event.slots, texts, strict=True))

    def _blocks_reported(self, event: v.BlocksReported) -> None:
        parent, size = event.parent, self.block_size
        for index, id_ in enumerate(event.nodes):
            node = self.nodes.get(id_)
            if node is None:
                node = NodeState(id_, parent, hash=event.hashes[index], media=[])
                self.nodes[id_] = node
                self.nodes[parent].children.add(id_)
            elif not node.blocks and node.parent != parent:  # now the block before is known
                self.nodes[node.parent].children.remove(id_)
                self.nodes[parent].children.add(id_)
                node.parent = parent
            if event.blocks:
                tokens = event.tokens[index * size : (index + 1) * size]
                self._add_reported(node, event.blocks[index], tokens, event.medium)
            parent = id_

    def _add_reported(self, node: NodeState, block: int, tokens: list[int], medium: str) -> None:
        if block > len(self.refs):
            raise ValueError(f"event {self.seq} reports block {block} before {len(self.refs)}")
        if block == len(self.refs):  # the largest number of blocks that were cached at once
            self.refs.append(0)
            self.settings["num_blocks"] = len(self.refs)
        self.refs[block] = 1
        self.node_of[block] = node.id
        node.media = [*(node.media or []), medium]
        if node.blocks:
            node.copies.append(block)
        else:
            node.blocks, node.tokens, node.texts = [block], tokens, [""] * len(tokens)

    def _step_reported(self, event: v.StepReported) -> None:
        self.reported = event

    def _adapter_changed(self, event: v.AdapterChanged) -> None:
        slots = self.adapters or [""] * self.settings["max_loras"]
        slots[event.slot] = event.adapter
        self.adapters = slots if any(slots) else []

    def _engine_paused(self, _event: v.EnginePaused) -> None:
        self.paused = True

    def _engine_resumed(self, _event: v.EngineResumed) -> None:
        self.paused = False

    def _events_missing(self, _event: v.EventsMissing) -> None:
        pass  # a gap changes nothing that is known


_FOLD: dict[type[v.Event], Callable[[State, Any], None]] = {
    kind: getattr(State, f"_{kind.__struct_config__.tag}")
    for kind in get_args(v.AnyEvent)
    if kind is not v.Keyframe
} | {v.Keyframe: State.restore}
