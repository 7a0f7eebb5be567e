"""Read recordings of vLLM by `underglass_vllm`: requests, steps, blocks, the queue and why it waits.

Each line becomes the events that our own engine logs with its hash cache. `vllm_lines.py` defines the
lines, and `vllm_saved.py` reads the state at the start of a rotated file. vLLM keeps cached and free
blocks in one queue: a cached block is evicted when it is allocated again. In our log, an eviction
event precedes the allocation.

The translator folds the events that it returns, so the state shows a line that contradicts earlier
lines. If the number of free blocks ever differs from vLLM's count, an `events_missing` event says so
once.

A line that cannot be read costs what it said: an `events_missing` event names it. What later lines say
of requests that it concerned is then left out where it contradicts the earlier lines, until they are
admitted again or end.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.core.config import EngineConfig
from engine.core.log import vocabulary as v
from engine.core.log.fold import State
from engine.core.log.log import NOT_JSON
from engine.core.log.state import ROOT
from engine.simulation.facts import FACTS, Fact, Knowledge
from visualizer.sources import vllm_lines as lines
from visualizer.sources.hash_numbers import HashNumbers
from visualizer.sources.reader import Reader, SourceError, Translator, foreign_start
from visualizer.sources.vllm_groups import group_names, main_first, place_of, replayable_groups
from visualizer.sources.vllm_saved import saved_state

_NOT_RECORDED: tuple[Fact, ...] = ("probabilities",)
_REASONS: dict[str, v.FinishReason] = {"stop": "stop", "length": "length", "abort": "abort"}
_MOST_MISSING = 100_000  # steps: a damaged number could use up the memory
_CONTRADICTS = (KeyError, IndexError, ValueError)
_ONLY_WITH_TOKENS: tuple[Fact, ...] = ("token_ids", "texts")


def _why(error: Exception) -> str:
    return f"they have no {error}" if isinstance(error, KeyError) else str(error)


def _settings(given: lines.Settings) -> dict[str, Any]:
    """Return all settings of a run of vLLM, given those that it has as well."""
    same = msgspec.structs.asdict(given)
    blocks, whole, cached = (same.pop(name) for name in lines.OTHERS)
    config = EngineConfig.like(
        "vllm",
        **same,
        max_kv_tokens=blocks * given.block_size,
        admission="whole" if whole else "first_chunk",
        prefix_cache="hash" if cached else "off",
        jump_forward=False,
    )
    return {**msgspec.to_builtins(config), "num_blocks": blocks}


def _facts(tokens: bool) -> dict[Fact, Knowledge]:
    unknown = _NOT_RECORDED + _ONLY_WITH_TOKENS * (not tokens)
    return {fact: "unknown" if fact in unknown else "recorded" for fact in FACTS}


@dataclass
class _Request:
    """What the state does not have of an unfinished request.

    stored  how many blocks of its table are cached
    """

    hashes: list[str]
    stored: int = 0
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )


class VllmTranslator(Translator):
    """Translates one file, or one recording that grows; through a pipe, its parts follow each other."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._header: lines.Header | None = None
        self._state = State()
        self._numbers = HashNumbers()
        self._requests: dict[int, _Request] = {}
        self._in_flight: dict[int, tuple[int, int, list[lines.Row]]] = {}  # by step
        self._pieces: dict[int, bytes] = {}
        self._differs = False
        self._at = 0  # time of the last line
        self._has_gap = self._is_broken = False
        self._lost: set[int] = set()  # requests of which a line that is missing said something

    def feed(self, message: bytes) -> list[v.Event]:
        """Return the events of a line.

        Raises SourceError if the line is invalid or contradicts earlier lines.
        """
        try:
            line = lines.decode(message)
        except NOT_JSON as error:
            raise SourceError(f"the line is not from a vLLM recording: {error}") from error
        if isinstance(line, lines.Header) and self._header and line.part > self._header.part:
            self._reset()
        if (self._header is None) != isinstance(line, lines.Header):
            place = "in the first line" if self._header is None else "only in the first line"
            raise SourceError(f'"type" must be "underglass_vllm" {place}')
        try:
            return list(self._translate(line))
        except _CONTRADICTS as error:
            self._is_broken = True  # the state has some of its events
            raise SourceError(f"the line contradicts the earlier lines: {_why(error)}") from error

    def skip(self, why: str, line: bytes) -> list[v.Event] | None:
        """See `Translator`. Without its first line, a recording cannot be read."""
        if self._header is None or self._is_broken:
            return None
        self._has_gap = True
        return [self._gap(1, why)]

    def _gap(self, count: int, why: str) -> v.Event:
        gap = v.EventsMissing(count, why, {"at": self._at})
        self._state.apply(gap)
        return gap

    def _translate(self, line: lines.Line) -> Iterator[v.Event]:
        """Yield the events of a line, each after the state has folded it."""
        self._at = getattr(line, "t", self._at)
        for event in self._events(line):
            self._state.apply(event)
            yield event
        if isinstance(line, lines.Step | lines.Done | lines.Between):
            yield from self._check(line)

    def _events(self, line: lines.Line) -> Iterator[v.Event]:
        match line:
            case lines.Header():
                self._add_pieces(line)
                yield self._begin(line)
            case lines.Pieces():
                self._add_pieces(line)
            case lines.Arrived():
                yield self._arrive(line)
            case lines.Step():
                yield from self._schedule(line)
            case lines.Done():
                yield from self._finish_step(line)
            case lines.Between():
                yield from self._ops(line.ops)
            case lines.Lost():
                why = f"the disk was too slow for {line.lines} more lines; the next part goes on"
                yield v.EventsMissing(line.lines, why, {"at": self._at})

    def _add_pieces(self, line: lines.Header | lines.Pieces) -> None:
        self._pieces |= {
            id_: piece.encode() if isinstance(piece, str) else bytes(piece)
            for id_, piece in line.pieces.items()
        }

    def _begin(self, header: lines.Header) -> v.Event:
        if header.version not in lines.VERSIONS:
            raise ValueError(
                f"version must be {lines.VERSIONS[-1]} or less, got {header.version}: open the "
                "recording with the version of Underglass that the recorder came with"
            )
        self._header, settings = header, _settings(header.settings)
        start = foreign_start(
            header.engine,
            f"underglass-vllm {header.version}",
            _facts(header.tokens),
            settings,
            header.unix_us,
            model=header.model,
        )
        if len(header.groups) > 1:
            start.source["groups"] = group_names(header)
            if groups := replayable_groups(header):
                start.model["kv_groups"] = groups
        if header.others:
            start.source["others"] = header.others
        return start if header.state is None else self._restore(header.state, start)

    def _arrive(self, line: lines.Arrived) -> v.Event:
        if line.request in self._requests:
            raise ValueError(f"request {line.request} arrives twice")
        self._requests[line.request] = _Request(line.hashes)
        prompt, texts = self._tokens(line.request, line.prompt)
        return v.RequestArrived(
            line.request,
            prompt,
            texts,
            line.id,
            line.max_tokens,
            1,
            line.priority,
            {} if line.prompt_logprobs is None else {"prompt_logprobs": line.prompt_logprobs},
            extra_key=[line.adapter, *(line.salt or [""])] if line.adapter or line.salt else [],
            hashes=list(line.hashes) if isinstance(line.prompt, int) else [],
            t={"at": line.t},
        )

    def _schedule(self, line: lines.Step) -> Iterator[v.Event]:
        if self._has_gap:  # the steps of lines that are missing
            if line.step > self._state.step + _MOST_MISSING:
                raise ValueError(f"step {line.step} follows step {self._state.step}")
            for step in range(self._state.step + 1, line.step):
                yield v.StepStarted(step)
        yield v.StepStarted(line.step)
        yield from self._ops(line.ops)
        line.rows = line.rows or line.batch.rows(line.step)
        running = set(self._state.running)
        if others := [row.request for row in line.rows if row.request not in running]:
            yield from self._without(others, "is scheduled, but it is not in the batch")
            line.rows = [row for row in line.rows if row.request in running]
        rows = [
            v.ScheduledRow(
                row.request, row.start, row.count, lines.known_ids(row.drafts) if row.drafts else []
            )
            for row in line.rows
        ]
        head = line.head
        if head is not None and head.request not in self._requests:
            yield from self._without([head.request], "waits, but it has not arrived")
            head = None
        blocked = None
        if head is not None and head.reason:
            blocked = v.Blocked(head.request, head.reason, line.waiting - 1, head.need, head.have)
        yield v.StepScheduled(rows, self._skipped(line), blocked)
        self._in_flight[line.step] = (line.t, line.t + line.took, line.rows)

    def _skipped(self, line: lines.Step) -> list[tuple[int, str]]:
        """Return the running requests that got no tokens, and why."""
        computing = {row.request for row in line.rows}
        assert self._header is not None
        settings = self._header.settings
        if sum(row.count for row in line.rows) >= settings.token_budget:
            reason = "token_budget"
        elif any(isinstance(op, lines.Preempt) for op in line.ops):
            reason = "after_preemption"
        else:  # the request's last token is still being computed
            reason = "awaits_token"
        return [(request, reason) for request in self._state.running if request not in computing]

    def _finish_step(self, line: lines.Done) -> Iterator[v.Event]:
        if line.step not in self._in_flight:
            if not self._has_gap:
                raise ValueError(f"step {line.step} is done, but no earlier line scheduled it")
            yield from self._ops(line.ops)
            return
        start, scheduled, rows = self._in_flight.pop(line.step)
        drafted = {row.request: len(lines.known_ids(row.drafts)) for row in rows if row.drafts}
        gains = []
        for gain in line.gains or line.gained.gains():
            request = gain.request
            if request not in self._requests:
                yield from self._without(
                    [request], "gets tokens, but it has not arrived, or has ended"
                )
                continue
            ids, texts = self._tokens(request, gain.tokens)
            accepted = max(0, min(drafted[request], len(ids) - 1)) if request in drafted else 0
            gains.append(v.TokenRow(request, ids, texts, accepted))
        wasted = [row.request for row in rows if row.request not in self._requests]
        times = {"start": start, "scheduled": scheduled, "end": line.t}
        yield v.StepFinished(gains, line.step, wasted, t=times)
        yield from self._ops(line.ops)

    def _ops(self, ops: list[lines.Op]) -> Iterator[v.Event]:
        for op in ops:
            if isinstance(op, lines.Clear):
                node_of = self._state.node_of
                children_first = sorted(node_of, key=lambda block: -node_of[block])
                yield from (self._evicted(block, -1, "cleared") for block in children_first)
                continue
            try:
                yield from self._op(op)
            except _CONTRADICTS as error:
                if not self._has_gap:
                    raise
                yield from self._without([op.request], f"is left out: {_why(error)}")
            if isinstance(op, lines.Finish | lines.Admit):
                self._lost.discard(op.request)

    def _without(self, requests: list[int], why: str) -> Iterator[v.Event]:
        """Say once of each request that lines about it contradict the earlier lines, if one is missing.

        Raises ValueError if no line is missing.
        """
        if not self._has_gap:
            raise ValueError(f"request {requests[0]} {why}")
        for request in requests:
            if request not in self._lost:
                self._lost.add(request)
                yield v.EventsMissing(0, f"request {request} {why}", {"at": self._at})

    def _op(self, op: lines.RequestOp) -> Iterator[v.Event]:
        state, request = self._state, self._known_request(op.request)
        match op:
            case lines.Admit(cached=cached):
                if op.request not in state.waiting:
                    raise ValueError(f"request {op.request} is admitted, but it does not wait")
                if missing := [one for one in cached if one not in state.node_of]:
                    raise ValueError(f"block {missing[0]} is not cached")
                node = state.node_of[cached[-1]] if cached else ROOT
                resumed = state.requests[op.request].preemptions > 0
                request.stored = len(cached)
                hits = main_first(self._header, op.hits) if self._header else []
                yield v.Admitted(op.request, node, cached, resumed, [], hits)
                yield from self._allocated(op.request, op.new)
            case lines.Grow():
                yield from self._allocated(op.request, op.new)
            case lines.GroupTable():
                for _, block in op.changes:
                    if block in state.node_of:
                        yield self._evicted(block, op.request, "room")
                assert self._header is not None
                yield v.GroupTableChanged(op.request, place_of(self._header, op.group), op.changes)
            case lines.Store():
                request.hashes += op.hashes
                yield self._stored(op, request)
            case lines.Preempt():
                if op.request not in state.running:
                    raise ValueError(f"request {op.request} is preempted, but it does not run")
                request.stored = 0
                yield v.Preempted(op.request, op.needed_by, 0)
            case lines.Finish():
                del self._requests[op.request]
                reason = _REASONS.get(op.reason, "error")
                yield v.RequestFinished(
                    op.request, reason, "" if reason == op.reason else op.reason
                )

    def _allocated(self, request: int, blocks: list[int]) -> Iterator[v.Event]:
        """Yield the allocation of blocks, after the evictions of those that are cached.

        If a line is missing, requests that have one of the blocks must have ended before.
        """
        if self._has_gap:
            yield from self._ended(set(blocks))
        for block in blocks:
            if block in self._state.node_of:
                yield self._evicted(block, request, "room")
        if blocks:
            yield v.BlocksAllocated(request, blocks)

    def _ended(self, blocks: set[int]) -> Iterator[v.Event]:
        state = self._state
        if blocks <= state.free.keys() | state.queue.keys():
            return
        for request, held in list(state.requests.items()):
            if not blocks.isdisjoint(held.block_table):
                self._requests.pop(request, None)
                yield v.RequestFinished(request, "error", "no line that can be read has its end")

    def _evicted(self, block: int, needed_by: int, reason: v.EvictionReason) -> v.Event:
        if block not in self._state.queue:
            raise ValueError(f"block {block} is evicted while a request uses it")
        return v.BlockEvicted(self._state.node_of[block], block, needed_by, reason)

    def _stored(self, op: lines.Store, request: _Request) -> v.Event:
        """Return the event that caches blocks, as further copies of hashes that are cached already."""
        state, end = self._state, op.first + op.count
        blocks = state.requests[op.request].block_table[op.first : end]
        hashes = request.hashes[op.first : end]
        if op.first != request.stored or len(blocks) != len(hashes) or not hashes:
            raise ValueError(
                f"request {op.request} stores {len(hashes)} blocks from index {op.first} of its table, "
                f"but {len(blocks)} are there, and {request.stored} are stored"
            )
        request.stored = end
        nodes = [self._numbers.of(hash_, state.nodes) for hash_ in hashes]
        parent = state.requests[op.request].last_node
        for block, node, above in zip(blocks, nodes, [parent, *nodes], strict=False):
            if block in state.node_of:
                raise ValueError(f"block {block} is stored, but is cached already")
            known = state.nodes.get(node)
            if known is not None and known.parent != above:
                raise ValueError(
                    f"block {block} follows a different prefix than the copies of its hash"
                )
            if known is not None and not known.blocks:
                raise ValueError(f"block {block} is stored after the blocks that follow it")
        return v.BlocksStored(op.request, parent, nodes, blocks)

    def _known_request(self, request: int) -> _Request:
        if request not in self._requests:
            raise ValueError(f"request {request} has not arrived, or it has ended already")
        return self._requests[request]

    def _tokens(self, request: int, tokens: lines.Tokens) -> tuple[list[int], list[str]]:
        """Return token ids and their texts, or -1 and "" for each token that was not recorded."""
        if isinstance(tokens, int):
            return [-1] * tokens, [""] * tokens
        ids = lines.known_ids(tokens)
        decode = self._requests[request].decoder.decode
        return ids, [decode(self._pieces.get(id_, b"")) for id_ in ids]

    def _check(self, line: lines.Step | lines.Done | lines.Between) -> Iterator[v.Event]:
        """Compare the number of free blocks with vLLM's count. Report only the first difference."""
        free = len(self._state.free) + len(self._state.queue)
        if free != line.free and not self._differs:
            self._differs = True
            yield v.EventsMissing(
                0,
                f"vLLM has {line.free} free blocks, but the recording accounts for "
                f"{free}: blocks and tables are uncertain from here on",
                {"at": line.t},
            )

    def _restore(self, saved: lines.Saved, start: v.RunStarted) -> v.Event:
        """Return the state at the start of a rotated recording's later file, as a keyframe."""
        for one in saved.requests:
            self._requests[one.request] = _Request(one.hashes, one.stored)
        self._in_flight = {
            step: (saved.t, saved.t, lines.rows_of(rows, step)) for step, rows in saved.in_flight
        }
        return v.Keyframe(0, saved_state(saved, self._numbers, self._tokens, start))


VLLM_RECORDER = Reader(
    name="vllm-recorder",
    title="vLLM, recorded with underglass-vllm",
    facts=_facts(tokens=True),
    recognizes=lambda line: b'"type":"underglass_vllm"' in line[:100].replace(b" ", b""),
    translator=VllmTranslator,
)
