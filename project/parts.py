"""Make one engine out of a learner's parts. A part that is absent takes its ability away.

A part gets plain values: numbers, and the client's label. It gets no request, no engine and no clock,
so it sees neither requests that have yet to arrive nor the length of an answer.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from math import isnan
from typing import Any

from checks.broken import Broken
from checks.lesson_05 import YourPool
from checks.lesson_06 import YourSplit
from checks.lesson_08 import YourEviction
from engine.core.cache.prefix_cache import PrefixLookup
from engine.core.cache.radix_tree import RadixTree
from engine.core.config import ConfigError, EngineConfig
from engine.core.request import Request
from engine.core.scheduling.policies import POLICIES
from engine.core.scheduling.policy import AdmissionLimits, Policy
from engine.core.scheduling.waiting_queue import WaitingQueue
from engine.simulation.cost_runner import US_PER_MS, VirtualClock
from project.learner import Mine, MineError, Waiting
from project.workloads import BLOCK_SIZE, CACHE, Kind

SETTINGS = ("policy", "admission")
WHOLE_PROMPTS = 2048  # tokens in a step, more than any prompt has


class SeenClock(VirtualClock):
    """A clock that notes the time read last, from which `order` gets the age of waiting requests.

    A policy has no clock of its own, and in a cluster each replica has one: the replica that steps has
    read its clock last.
    """

    latest_us = 0

    def now(self) -> int:
        """See `VirtualClock`."""
        SeenClock.latest_us = super().now()
        return SeenClock.latest_us

    def advance(self, microseconds: int) -> None:
        """See `VirtualClock`."""
        super().advance(microseconds)
        self.now()


def seen_ms() -> float:
    """Return the time on the clock that was read last."""
    return SeenClock.latest_us / US_PER_MS


def hands_over(mine: Mine, kind: Kind) -> bool:
    """Return whether one replica prefills for others, which get the KV in their prefix caches."""
    return kind.link is not None and mine.parts.keys() >= {*CACHE, "fetch"}


def config_of(mine: Mine, kind: Kind) -> EngineConfig:
    """Return the engine's settings: the learner's, the workload's, and what the parts make possible.

    Raises MineError.
    """
    if wrong := mine.settings.keys() - SETTINGS:
        raise MineError(f"SETTINGS has {sorted(wrong)}; it may have {', '.join(SETTINGS)} only")
    has = mine.parts.keys()
    has_cache = has >= {*CACHE}
    below = has_cache and "fetch_or_compute" in has
    try:
        return EngineConfig(
            max_batch_size=kind.seats,
            max_kv_tokens=kind.blocks * BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            batching="continuous" if "admit" in has else "static",
            preemption="victim" in has,
            prefix_cache="radix" if has_cache else "off",
            chunked_prefill="pick_budget" in has,
            token_budget=_budget(mine, kind),
            async_scheduling="Ahead" in has and kind.cost.cpu_ms > 0,
            host_kv_tokens=kind.host * BLOCK_SIZE * below,
            disk_kv_tokens=kind.disk * BLOCK_SIZE * below,
            **mine.settings,
        )
    except ConfigError as error:
        raise MineError(f"SETTINGS, or pick_budget for token_budget: {error}") from None


def _budget(mine: Mine, kind: Kind) -> Any:
    """Ask `pick_budget`. A replica that only prefills has no gaps, so it computes whole prompts."""
    pick_budget = mine.guarded("pick_budget")
    if pick_budget is None or hands_over(mine, kind):
        return WHOLE_PROMPTS
    cost = kind.cost
    answer = pick_budget(cost.base_ms, cost.per_token_ms, kind.seats, kind.gap_ms)
    return WHOLE_PROMPTS if answer is None else answer


def parts_of(mine: Mine, config: EngineConfig, ttft_goal_ms: float) -> dict[str, Any]:
    """Return the parts for an engine; the engine's own are left out."""
    parts: dict[str, Any] = {}
    if mine.parts.keys() & {"order", "admit", "victim"}:
        policy = type("YourPolicy", (YourPolicy, POLICIES[config.policy]), {})
        parts["policy"] = policy(mine, ttft_goal_ms)
    if config.prefix_cache == "radix" and mine.parts.keys() & {"split", "choose_leaf"}:
        parts["tree"] = YourTree(mine, config.block_size)
    pool = mine.guarded("BlockPool")
    if pool is not None:
        parts["pool"] = YourPool(pool, config.num_blocks)
    return parts


class YourPolicy(Policy):
    """A learner's `order`, `admit` and `victim` where written, on top of the policy in SETTINGS."""

    def __init__(self, mine: Mine, ttft_goal_ms: float) -> None:
        super().__init__()
        self._order, self._admit, self._victim = (
            mine.each("order"),
            mine.guarded("admit"),
            mine.guarded("victim"),
        )
        self._ttft_goal_ms = ttft_goal_ms
        self._arrived: dict[int, float] = {}
        self._tree: PrefixLookup | None = None
        self._waiting: Iterable[Request] = ()
        self._keys: dict[int, tuple[float, ...]] = {}  # of the waiting requests, at a time
        self._keys_of = -1.0
        if self._order is not None:
            self.keys_change, self.sort_limit = True, None

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return the answer of `order`, which is asked about the whole queue once in a step."""
        self._tree = tree
        if self._order is None:
            return super().key(request, tree)
        if self._keys_of != seen_ms() or request.id not in self._keys:
            queue = list(self._waiting)
            answers = self._order([self._view(one, tree) for one in queue])
            self._keys_of = seen_ms()
            self._keys = {
                one.id: _key_of(answer) for one, answer in zip(queue, answers, strict=True)
            }
        return self._keys[request.id]

    def _view(self, request: Request, tree: PrefixLookup) -> Waiting:
        return Waiting(
            id=request.id,
            label=request.label,
            priority=request.priority,
            prompt_tokens=request.prompt_length,
            cached_tokens=_cached_tokens(request, tree),
            output_tokens=len(request.tokens) - request.prompt_length,
            max_tokens=request.params.max_tokens,
            preemptions=request.preemptions,
            age_ms=seen_ms() - self._arrived[request.id],
            ttft_goal_ms=self._ttft_goal_ms,
        )

    def group(self, request: Request) -> Hashable:
        """Return the group that the policy in SETTINGS forms."""
        return request.id if self._order is not None else super().group(request)

    def admit(
        self, waiting: Iterator[Request], limits: AdmissionLimits
    ) -> Collection[Request] | None:
        """Return the requests whose ids `admit` returned. Cached tokens need not be computed."""
        if self._admit is None:
            return None
        queue = list(waiting)
        rows = [(one.id, self._missing(one), one.num_seqs) for one in queue]
        answer = self._admit(rows, *limits)
        ids = [one.id for one in queue]
        if not isinstance(answer, list | tuple | set) or any(one not in ids for one in answer):
            raise Broken(
                f"admit() returned {answer!r}.",
                "admit() returns a list of ids of waiting requests",
                f"The waiting requests are {ids}.",
            )
        return [one for one in queue if one.id in answer]

    def _missing(self, request: Request) -> int:
        cached = 0 if self._tree is None else _cached_tokens(request, self._tree)
        return request.num_uncomputed_tokens - cached

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the running request whose id `victim` returned."""
        if self._victim is None:
            return super().victim(running, needed_by)
        rows = [
            (one.id, one.priority, one.id, one.num_computed_tokens, len(one.block_table))
            for one in running
        ]
        chosen = self._victim(rows, needed_by.id)
        for one in running:
            if one.id == chosen:
                return one
        raise Broken(
            f"victim() returned {chosen!r}.",
            "victim() returns the id of a running request",
            f"The running requests are {[one.id for one in running]}.",
        )

    def on_queued(self, request: Request, waiting: WaitingQueue) -> None:
        """Note when a request arrived."""
        self._waiting = waiting
        self._keys_of = -1.0
        self._arrived.setdefault(request.id, seen_ms())
        super().on_queued(request, waiting)


def _key_of(answer: Any) -> tuple[float, ...]:
    """Return an answer of `order` as a key. Raises Broken for one that does not sort."""
    key = tuple(answer) if isinstance(answer, tuple | list) else (answer,)
    if not all(isinstance(one, int | float) and not isnan(one) for one in key):
        raise Broken(
            f"order() returned {answer!r}.",
            "order() returns a number, or a tuple of numbers",
            "The request with the smallest goes first.",
        )
    return key


def _cached_tokens(request: Request, tree: PrefixLookup) -> int:
    """Count the leading tokens in the cache. One token is always computed, for its logits."""
    limit = (len(request.tokens) - 1) // tree.block_size
    return len(tree.match(request.tokens, limit).blocks) * tree.block_size


class YourTree(YourSplit, YourEviction):
    """The engine's tree with a learner's `split` and `choose_leaf` where written."""

    def __init__(self, mine: Mine, block_size: int) -> None:
        RadixTree.__init__(self, block_size)
        self._split, self._choose_leaf = mine.guarded("split"), mine.guarded("choose_leaf")
