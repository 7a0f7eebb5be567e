"""The real scheduler with one exception: in one step of a rerun, it follows a reader's choice.

The choice replaces one decision, or the settings from that step on. Nothing in a normal run knows of
it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from engine.core.cache.radix_tree import RadixNode
from engine.core.request import Request
from engine.core.scheduling.policy import Policy
from engine.core.scheduling.scheduler import Plan, Scheduler
from engine.extensions.grouped_cache import GroupedScheduler
from engine.simulation.choice import (
    Budget,
    Choice,
    ChoiceError,
    Evict,
    First,
    Later,
    Settings,
    Victim,
)


def choosing(scheduler: Scheduler, at: int, choice: Choice) -> "ChoosingScheduler":
    """Return a scheduler that follows a choice in step `at`, and otherwise the rules of `scheduler`."""
    is_grouped = isinstance(scheduler, GroupedScheduler)
    return (_GroupedChoosing if is_grouped else ChoosingScheduler)(scheduler, at, choice)


class ChoosingScheduler(Scheduler):
    """The scheduler of a rerun: in step `at` it follows a choice, otherwise its own rules.

    is_taken  whether the choice has been applied: a step may not have the decision that it replaces
    """

    def __new__(cls, scheduler: Scheduler, *_: Any) -> "ChoosingScheduler":
        """Return an instance that also has the rules of the rerun's own kind of scheduler."""
        kind = type(scheduler)
        return super().__new__(cls if kind is Scheduler else type(cls.__name__, (cls, kind), {}))

    def __init__(self, scheduler: Scheduler, at: int, choice: Choice) -> None:
        vars(self).update(vars(scheduler))
        self.is_taken = False
        self._at = at
        self._choice = choice

    def schedule(self) -> Plan:
        """See `Scheduler.schedule`."""
        if self.step != self._at:
            return super().schedule()
        with self._chosen():
            return super().schedule()

    @contextmanager
    def _chosen(self) -> Iterator[None]:
        kept = {name: vars(self)[name] for name in ("config", "policy", "_defers")}
        methods: list[tuple[Any, str]] = []
        match self._choice:
            case Settings(seats, budget):
                changes = {"max_batch_size": seats, "token_budget": budget}
                self.config = kept["config"] = self.config.changed(
                    **{name: value for name, value in changes.items() if value is not None}
                )
                self.is_taken = True
            case Budget(tokens):
                self.config = self.config.changed(token_budget=tokens)
                self.is_taken = True
            case Victim(request, nth):
                self.policy = _ChosenVictim(self.policy, request, nth, self._take)
            case Later(request):
                self._defers = self._puts_off(request, self._defers)
            case First(request):
                methods.append((self.waiting, "in_order"))
                vars(self.waiting)["in_order"] = self._with_first(request, self.waiting.in_order)
            case Evict(node, nth):
                tree: Any = self.cache.tree
                methods.append((tree, "next_victim"))
                vars(tree)["next_victim"] = self._leaf(node, nth, tree.next_victim)
        try:
            yield
        finally:
            vars(self).update(kept)
            for part, method in methods:
                del vars(part)[method]

    def _take(self) -> None:
        self.is_taken = True

    def _puts_off(self, chosen: int, defers: Callable[..., Any] | None) -> Callable[..., bool]:
        def puts_off(request: Request, lookup: Any, computing: Sequence[Request]) -> bool:
            if request.id == chosen:
                self.is_taken = True
                return True
            return defers is not None and bool(defers(request, lookup, computing))

        return puts_off

    def _with_first(
        self, chosen: int, in_order: Callable[[], Generator[Request, None, None]]
    ) -> Callable[[], Generator[Request, None, None]]:
        first = next((request for request in self.waiting if request.id == chosen), None)
        if first is None:
            raise ChoiceError(f"request {chosen} does not wait in step {self.step}")

        def chosen_first() -> Generator[Request, None, None]:
            yield first
            with closing(in_order()) as others:
                for request in others:
                    if request is not first:
                        yield request

        self.is_taken = True
        return chosen_first

    def _leaf(
        self, chosen: int, nth: int, next_victim: Callable[[], RadixNode | None]
    ) -> Callable[[], RadixNode | None]:
        asked = -1

        def leaf() -> RadixNode | None:
            nonlocal asked
            asked += 1
            if asked != nth:
                return next_victim()
            node: RadixNode | None = self.cache.nodes.get(chosen)
            if node is None or node.children or node.lock_ref or not node.blocks:
                raise ChoiceError(
                    f"node {chosen} cannot be evicted in step {self.step}: it is not an unlocked leaf"
                )
            self.is_taken = True
            return node

        return leaf


class _ChosenVictim(Policy):
    """A policy as far as victims are concerned: preemption number `nth` has a chosen one."""

    def __init__(self, policy: Policy, request: int, nth: int, take: Callable[[], None]) -> None:
        self._policy = policy
        self._request = request
        self._left = nth
        self._take = take

    def victim(self, running: Sequence[Request], needed_by: Request) -> Request:
        """Return the chosen request, or what the policy decides."""
        self._left -= 1
        if self._left != -1:
            return self._policy.victim(running, needed_by)
        for request in running:
            if request.id == self._request:
                self._take()
                return request
        raise ChoiceError(f"request {self._request} does not run, so it cannot be preempted")


class _GroupedChoosing(ChoosingScheduler, GroupedScheduler):
    """The same for several KV cache groups."""
