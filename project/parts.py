"""Make one engine out of a learner's parts.

A part gets plain values: numbers, and the client's label. It gets no request, no engine and no clock,
so it sees neither requests that have yet to arrive nor the length of an answer. Python cannot hide them
from code that searches the interpreter's memory, but such code is easy to see in a submission.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from math import isnan
from typing import Any, NamedTuple

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
from project.learner import Mine, MineError
from project.workloads import BLOCK_SIZE, MACHINE, SEATS, Kind

FIXED = ("max_batch_size", "max_kv_tokens", "block_size")  # the workload sets these


class Waiting(NamedTuple):
    """A waiting request, as `order` sees it.

    cached_tokens  leading tokens that the prefix cache has now
    output_tokens  tokens of its answer that its client has already; 0 unless it was preempted
    age_ms         time since it arrived
    ttft_goal_ms   the goal for the time from arrival to first token
    """

    id: int
    label: str
    priority: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    max_tokens: int
    preemptions: int
    age_ms: float
    ttft_goal_ms: float


def config_of(mine: Mine, kind: Kind) -> EngineConfig:
    """Return the engine's settings: the learner's, and those of the workload.

    `pick_budget` chooses the token budget if it is written and SETTINGS has none. Raises MineError.
    """
    settings = dict(mine.settings)
    for name in settings:
        if name in FIXED:
            raise MineError(f"SETTINGS must not have {name}: the workload sets it")
        if name not in EngineConfig.__struct_fields__:
            free = [one for one in EngineConfig.__struct_fields__ if one not in FIXED]
            raise MineError(f"SETTINGS has {name!r}, which is no setting; there are {free}")
    pick_budget = mine.guarded("pick_budget")
    if pick_budget is not None and "token_budget" not in settings:
        budget = pick_budget(MACHINE.base_ms, MACHINE.per_token_ms, SEATS, kind.gap_ms)
        if budget is not None:
            settings["token_budget"] = budget
    try:
        return EngineConfig(
            max_batch_size=SEATS,
            max_kv_tokens=kind.blocks * BLOCK_SIZE,
            block_size=BLOCK_SIZE,
            **settings,
        )
    except ConfigError as error:
        source = "" if "token_budget" in mine.settings else " (pick_budget chooses token_budget)"
        raise MineError(f"SETTINGS{source}: {error}") from None


def parts_of(
    mine: Mine, config: EngineConfig, now_ms: Callable[[], float], ttft_goal_ms: float
) -> dict[str, Any]:
    """Return the parts for an engine; the engine's own are left out."""
    parts: dict[str, Any] = {}
    if mine.parts.keys() & {"order", "admit", "victim"}:
        policy = type("YourPolicy", (YourPolicy, POLICIES[config.policy]), {})
        parts["policy"] = policy(mine, now_ms, ttft_goal_ms)
    if mine.parts.keys() & {"split", "choose_leaf"}:
        parts["tree"] = YourTree(mine, config.block_size)
    pool = mine.guarded("BlockPool")
    if pool is not None:
        parts["pool"] = YourPool(pool, config.num_blocks)
    return parts


class YourPolicy(Policy):
    """A learner's `order`, `admit` and `victim` where written, on top of the policy in SETTINGS."""

    def __init__(self, mine: Mine, now_ms: Callable[[], float], ttft_goal_ms: float) -> None:
        super().__init__()
        self._order, self._admit, self._victim = (
            mine.guarded(name) for name in ("order", "admit", "victim")
        )
        self._now_ms, self._ttft_goal_ms = now_ms, ttft_goal_ms
        self._arrived: dict[int, float] = {}
        self._tree: PrefixLookup | None = None
        if self._order is not None:
            self.keys_change, self.sort_limit = True, None

    def key(self, request: Request, tree: PrefixLookup) -> tuple[float, ...]:
        """Return the answer of `order`."""
        self._tree = tree
        if self._order is None:
            return super().key(request, tree)
        answer = self._order(self._view(request, tree))
        key = answer if isinstance(answer, tuple) else (answer,)
        if not all(isinstance(one, int | float) and not isnan(one) for one in key):
            raise Broken(
                f"order() returned {answer!r}.",
                "order() returns a number, or a tuple of numbers",
                "The request with the smallest goes first.",
            )
        return key

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
            age_ms=self._now_ms() - self._arrived[request.id],
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
        self._arrived.setdefault(request.id, self._now_ms())
        super().on_queued(request, waiting)


def _cached_tokens(request: Request, tree: PrefixLookup) -> int:
    """Count the leading tokens in the cache. One token is always computed, for its logits."""
    limit = (len(request.tokens) - 1) // tree.block_size
    return len(tree.match(request.tokens, limit).blocks) * tree.block_size


class YourTree(YourSplit, YourEviction):
    """The engine's tree with a learner's `split` and `choose_leaf` where written."""

    def __init__(self, mine: Mine, block_size: int) -> None:
        RadixTree.__init__(self, block_size)
        self._split, self._choose_leaf = mine.guarded("split"), mine.guarded("choose_leaf")
