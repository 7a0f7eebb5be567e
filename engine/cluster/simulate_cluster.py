"""Play a workload on several simulated machines behind a router: one cluster log.

Each replica is an engine on a virtual clock of its own, which stands for the same time. The simulation
takes what happens next, on whichever replica, from one queue that is ordered by time:

    news    events of a replica reach the gateway, `lag_ms` after they happened
    tokens  a step ended: its tokens pass through the gateway
    move    the KV of a prompt has arrived at its decode replica (`roles.py`)
    fault   a replica stops in the middle of its step, the router learns of it, or it joins again
    input   a request arrives at the gateway, is routed, and is on its way to its replica
    step    a replica takes in what arrived while it was computing, and runs the next step

What happens at the same time happens in this order. As in `simulate`, a step runs as a whole when it
starts, because nothing can change it any more: its events and its tokens become known later.

Differs from a real cluster: routing takes no time. The way to a replica takes the `way_ms` of an
arrival, which is 0 unless it was recorded.
"""

import copy
import dataclasses
import gc
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.cluster_part import ClusterPart
from engine.cluster.dispatcher import Dispatcher
from engine.cluster.events import Controlled, Moved, Of
from engine.cluster.recorded_faults import Fault
from engine.cluster.router import Router
from engine.cluster.simulated_roles import Move, Roles, prefill_of
from engine.core.config import EngineConfig, checked
from engine.core.log.log import EventLog
from engine.core.log.vocabulary import Event
from engine.core.loop import StepOutput
from engine.extensions.prefix_keys import keyed
from engine.extensions.resumption import Begun
from engine.simulation.cost_runner import US_PER_MS, Cost, CostRunner, VirtualClock
from engine.simulation.simulate import ReplayEngine, at_us
from engine.simulation.workload import (
    Abort,
    Adopt,
    Arrival,
    Clear,
    End,
    Input,
    Restore,
    Workload,
)

_NEWS, _TOKENS, _MOVE, _FAULT, _INPUT, _STEP = range(6)


def simulate_cluster(
    workload: Workload,
    config: EngineConfig | None = None,
    *,
    cost: Cost | CostRunner | Callable[[int], CostRunner],
    replicas: int = 2,
    router: Router | str = "prefix_events",
    lag_ms: float = 50.0,
    roles: Roles | None = None,
    fail: Mapping[str, float] | None = None,
    faults: Sequence[Fault] = (),
    begun: Mapping[str, Sequence[Input]] | None = None,
    after: ClusterPart | None = None,
    log: ClusterLog | None = None,
    **parts: Any,
) -> ClusterLog:
    """Serve a whole workload with several replicas, and return the log of all of them.

    config    the settings of every replica; their ids are "0", "1", ...
    cost      the prices of a step, or a CostRunner of your own, of which every replica gets a copy; or
              a function that makes the runner of the replica with a number
    router    a name (`engine.cluster.ROUTERS`), or a new Router of your own
    lag_ms    how long an event takes from a replica to the router
    roles     how many replicas prefill, and how many decode, instead of `replicas`
    fail      replica -> when it dies, in ms
    faults    the same for replicas that come back, or whose death is noticed later
    after     the part of a log that is replayed: its router knows what happened before
    begun     replica -> what it had when the part began; one that is missing is empty. The requests of
              "" are routed first
    log       where to write, for example a ClusterLog with a window for a long run
    parts     passed on to every `Engine`, as copies: policy, pool, tree, eviction, drafter

    The inputs must come at times, in order. Requests are numbered from 1, one number per sample. A
    prefix that is adopted is in the cache of every replica, and one that is held is the first one's.
    Raises RequestError for a request that these settings could never serve, RouterError for a mistake
    of a router of your own, and NoReplicaError if a request finds no replica alive that decodes.
    """
    if not isinstance(replicas, int) or replicas < 1:
        raise ValueError(f"replicas must be a whole number of at least 1, got {replicas!r}")
    if not lag_ms >= 0:
        raise ValueError(f"lag_ms must be at least 0, got {lag_ms!r}")
    cluster = _Cluster(
        router, ClusterLog() if log is None else log, round(lag_ms * US_PER_MS), roles
    )
    config = checked(config)
    faults = [*faults, *(Fault(name, at, at) for name, at in (fail or {}).items())]
    kept = {fault.replica for fault in faults if not fault.is_new} | {*(begun or ())}

    def start(number: int) -> _Replica:
        if isinstance(cost, Cost):
            runner = CostRunner(**asdict(cost))
        else:
            runner = copy.deepcopy(cost) if isinstance(cost, CostRunner) else cost(number)
        feed = _Feed(runner.clock, is_kept=str(number) in kept)
        engine = ReplayEngine(runner, config, workload, log=feed, **copy.deepcopy(parts))
        role = "" if roles is None else roles.of(number)
        return _Replica(str(number), role, runner.clock, feed, engine)

    for number in range(replicas if roles is None else roles.prefill + roles.decode):
        cluster.join(start(number))
    for fault in faults:
        cluster.plan_fault(fault, start)
    if begun and after is not None:
        cluster.begin(begun, after, workload)
    with _seldom_collecting():
        cluster.run(workload)
    return cluster.log


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Let Python look for cycles a thousandth as often, because looking is a fifth of the work."""
    often = gc.get_threshold()
    gc.set_threshold(1000 * often[0], *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)


class _Feed(EventLog):
    """The log of an engine, which the gateway reads: events in batches of the same time.

    is_kept  keep all events, for the keyframe with which a gateway joins again
    """

    def __init__(self, clock: VirtualClock, *, is_kept: bool) -> None:
        super().__init__()
        self._clock = clock
        self._is_kept = is_kept
        self._next_seq = 0
        self._unread: list[tuple[int, list[Event]]] = []

    @property
    def next_seq(self) -> int:
        return self._next_seq

    def append(self, event: Event) -> None:
        now = self._clock.now()
        if not self._unread or self._unread[-1][0] != now:
            self._unread.append((now, []))
        self._unread[-1][1].append(event)
        self._next_seq += 1
        if self._is_kept:
            super().append(event)

    def summarize(self) -> None:
        """Put a keyframe in the place of the unread events."""
        self._unread = [(self._clock.now(), [self.state().keyframe()])]

    def take(self) -> list[tuple[int, list[Event]]]:
        """Return the batches since the last call, each with its time."""
        unread, self._unread = self._unread, []
        return unread


@dataclass(slots=True, eq=False)
class _Replica:
    """An engine with its inbox.

    inbox     inputs that the engine takes in before its next step: (input, the cluster's number of its
              request, when it was sent)
    requests  the engine's request id -> the cluster's number, for each sample
    news      batches of events on their way to the gateway, each with the time at which it left
    read      the number of events that reached the gateway
    is_awake  a step is planned
    is_dead   it has stopped, and does nothing more
    """

    id: str
    role: str
    clock: VirtualClock
    feed: _Feed
    engine: ReplayEngine
    inbox: list[tuple[Input, int, int]] = field(default_factory=list)
    requests: dict[int, int] = field(default_factory=dict)
    news: deque[tuple[int, list[Event]]] = field(default_factory=deque)
    read: int = 0
    is_awake: bool = False
    is_dead: bool = False


@dataclass(slots=True)
class _Live:
    """A request that has not ended.

    first       its id in its replica's engine, None on its way
    move        the KV that comes with it to its decode replica
    output      the tokens that its client has, if it has one sample; a request with more begins again
    is_aborted  its prompt is being computed, and it goes no further
    """

    arrival: Arrival
    replica: _Replica | None = None
    first: int | None = None
    move: Move | None = None
    output: list[int] = field(default_factory=list)
    is_aborted: bool = False


class _Cluster:
    """The replicas, the dispatcher, and what happens next."""

    def __init__(
        self, router: Router | str, log: ClusterLog, lag_us: int, roles: Roles | None
    ) -> None:
        self.log = log
        self._lag_us = lag_us
        self._roles = roles
        self._dispatcher = Dispatcher(router, log, unix_us=time.time_ns() // 1000)
        self._replicas: dict[str, _Replica] = {}
        self._agenda: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._live: dict[int, _Live] = {}
        self._next_request = 1
        self._now = 0
        self._returns = 0  # replicas that will join again
        self._parked: list[int] = []  # requests that wait for one of them
        self._is_over = False  # no further step begins

    def join(self, replica: _Replica) -> None:
        """Add a replica. Its first event, run_started or a keyframe, is known at once."""
        self._replicas[replica.id] = replica
        size = replica.engine.config.block_size
        self._dispatcher.join(replica.id, size, self._now, role=replica.role)
        for _, events in replica.feed.take():
            replica.news.append((self._now, events))
        self._deliver(replica, self._now)

    def begin(
        self, begun: Mapping[str, Sequence[Input]], part: ClusterPart, workload: Workload
    ) -> None:
        """Begin as a part of a log: with what replicas had, and a router that knows what was before."""
        inputs = [one for some in begun.values() for one in some]
        at = min(map(at_us, chain(inputs, workload.inputs[:1])), default=0)
        others = count(1 + max(part.live.values(), default=0))
        live = set[int]()
        for name, some in begun.items():
            arrivals = [one for one in some if isinstance(one, Arrival)]
            numbers = [-(part.live.get((name, one.request)) or next(others)) for one in arrivals]
            live.update(numbers)
            self._plan(at, _INPUT, self._resume, name, some, iter(numbers))
        self._dispatcher.follow(part.before, part.arrived, live)

    def _resume(self, name: str, inputs: Sequence[Input], numbers: Iterator[int]) -> None:
        """Give a replica its cache and its requests; its first step is when it was."""
        replica, resumed = self._replicas.get(name), list[int]()
        if replica is not None:
            replica.clock.skip_to(self._now)
        for one in inputs:
            request = 0
            if isinstance(one, Arrival):
                request = next(numbers)
                output = list(one.begun.output) if one.begun else []
                # Another replica has other numbers.
                self._live[request] = _Live(
                    dataclasses.replace(one, request=0), replica, output=output
                )
                if replica is None:
                    self._route(request)
                resumed.append(request)
            if replica is not None:
                self._take_in(replica, one, request, self._now)
        if replica is None:
            return
        for _, events in replica.feed.take():
            for event in events:
                self.log.append(Of(name, replica.read, event))
                replica.read += 1
        keyframe = replica.feed.state().keyframe()
        self._dispatcher.router.on_event(name, keyframe, self._now)
        for request in resumed:
            live = self._live[request]
            tokens, has_token = live.arrival.keyed_prompt, bool(live.output)
            self._dispatcher.resumed(request, tokens, name, self._now, has_token=has_token)
        if not resumed:
            return
        replica.is_awake = True
        first = max((at_us(one) for one in inputs), default=self._now)
        self._plan(max(first, self._now), _STEP, self._step, replica)

    def plan_fault(self, fault: Fault, start: Callable[[int], _Replica]) -> None:
        """Let a replica fail. `start` makes another one. Raises ValueError for an unknown replica."""
        if (name := fault.replica) not in self._replicas:
            known = ", ".join(self._replicas)
            raise ValueError(f"fail: there is no replica {name!r}; the replicas are {known}")
        self._plan(round(fault.at_ms * US_PER_MS), _FAULT, self._stop, name)
        self._plan(round(fault.noticed_ms * US_PER_MS), _FAULT, self._leave, name, fault.why)
        if fault.back_ms is not None:
            self._returns += 1
            new = start if fault.is_new else None
            self._plan(round(fault.back_ms * US_PER_MS), _FAULT, self._return, name, new)

    def run(self, workload: Workload) -> None:
        """Serve all inputs."""
        self._plan_next_input(iter(workload.inputs))
        while self._agenda:
            self._now, _, _, action, arguments = heapq.heappop(self._agenda)
            action(*arguments)

    def _plan(self, at: int, kind: int, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._agenda, (at, kind, next(self._order), action, arguments))

    # Inputs

    def _plan_next_input(self, inputs: Iterator[Input]) -> None:
        one = next(inputs, None)
        if one is None:
            return
        if one.step is not None:
            raise ValueError(
                f"the inputs must come at times, because replicas share no steps; got step {one.step}: "
                'use Workload.from_log(log, pinned="time")'
            )
        if at_us(one) < self._now:
            raise ValueError(f"the inputs must be in order of time, got one at {one.at_ms} ms late")
        self._plan(at_us(one), _INPUT, self._take, one, inputs)

    def _take(self, one: Input, inputs: Iterator[Input]) -> None:
        match one:
            case Arrival():
                request = one.request or self._next_request
                self._next_request = request + one.params.samples
                self._live[request] = _Live(one)
                if self._roles is not None and one.params.samples > 1:
                    raise ValueError(
                        f"with roles, a prompt has one sample, got {one.params.samples} of {one.label}"
                    )
                self._route(request)
            case Abort():
                self._abort(one)
            case Clear():
                self.log.append(Controlled("clear_cache", None, {"at": self._now}))
                for replica in self._replicas.values():
                    self._send(replica, one)
            case Adopt() | Restore():
                for replica in self._replicas.values():
                    self._send(replica, one)
            case End():
                self._is_over = True
                return
            case _:  # what the first replica holds
                self._send(next(iter(self._replicas.values())), one)
        self._plan_next_input(inputs)

    def _route(self, request: int) -> None:
        """Route a request: with roles, to a replica that computes its prompt."""
        live = self._live[request]
        live.move = None
        if self._parks(request):
            return
        if live.output:
            live.arrival = dataclasses.replace(live.arrival, begun=Begun(0, list(live.output)))
        if self._prefills_elsewhere(live.arrival):
            self._send(self._choose(request, "prefill"), prefill_of(live.arrival), request)
        else:
            self._send(self._choose(request, "decode"), live.arrival, request)

    def _parks(self, request: int) -> bool:
        """Let a request wait if there is no replica that decodes, but will be."""
        if not self._returns or self._among("decode"):
            return False
        self._parked.append(request)
        return True

    def _prefills_elsewhere(self, one: Arrival) -> bool:
        """Return whether a prompt is computed on a prefill replica."""
        if self._roles is None or not self._among("prefill"):
            return False
        decoders = [self._replicas[id_].engine for id_ in self._among("decode")]
        return bool(decoders) and self._roles.pays(list(one.prompt), decoders)

    def _choose(self, request: int, role: str) -> _Replica:
        """Ask the router for one of the replicas with a role; without roles, of all."""
        live = self._live[request]
        one, among = live.arrival, None if self._roles is None else self._among(role)
        tokens, output = one.keyed_prompt, len(live.output)
        if output:
            tokens = keyed([*one.prompt, *live.output], one.extra_key)
        decision = self._dispatcher.route(
            request, tokens, one.label, self._now, among=among, output=output
        )
        live.replica, live.first = self._replicas[decision.replica], None
        return live.replica

    def _among(self, role: str) -> list[str]:
        """Return the replicas with a role that are present; without roles, of all."""
        every = [self._replicas[name] for name in self._dispatcher.replicas]
        return [one.id for one in every if one.role in ("", role)]

    def _hand_over(self, request: int, source: _Replica) -> None:
        """Choose a decode replica for a computed prompt, and move its blocks there."""
        assert self._roles is not None
        if self._parks(request):
            return
        live, target = self._live[request], self._choose(request, "decode")
        prompt = list(live.arrival.prompt)
        live.move = Move.start(self._roles, prompt, source.id, source.engine, target.engine)
        time_us = round(self._roles.transfer.move_ms(live.move.pages.blocks) * US_PER_MS)
        arguments = (request, live.move, target, time_us)
        self._plan(self._now + time_us, _MOVE, self._arrive, *arguments)

    def _arrive(self, request: int, move: Move, target: _Replica, time_us: int) -> None:
        """Send a request to its decode replica, with the blocks that were moved."""
        live = self._live.get(request)
        if live is None or live.move is not move:
            return  # its decode replica died
        if live.is_aborted:
            self._dispatcher.ended(request, self._now)
            del self._live[request]
            return
        if self._replicas[move.source].is_dead:
            live.move = None  # so the rest of its blocks is lost
        elif move.pages.blocks:
            t = {"at": self._now - time_us, "us": time_us}
            tokens, (blocks, data) = len(move.tokens), move.pages
            moved = Moved(request, move.source, target.id, tokens, blocks, len(data), t)
            self.log.append(moved)
        self._send(target, live.arrival, request)

    def _abort(self, one: Abort) -> None:
        """Abort a sample, if its request is alive."""
        for request, live in self._live.items():
            sample = one.request - request
            if 0 <= sample < live.arrival.params.samples and live.replica is not None:
                live.is_aborted = self._roles is not None
                self._send(live.replica, Abort(request=sample), request)

    def _send(self, replica: _Replica, one: Input, request: int = 0) -> None:
        live = self._live.get(request)
        if live is not None and live.arrival.way_ms:
            at = self._now + round(live.arrival.way_ms * US_PER_MS)
            self._plan(at, _MOVE, self._reach, replica, one, request, self._now)
        else:
            self._reach(replica, one, request, self._now)

    def _reach(self, replica: _Replica, one: Input, request: int, sent: int) -> None:
        """Put an input into a replica's inbox, unless its request goes to another one by now."""
        live = self._live.get(request)
        if not replica.is_dead and (live is None or live.replica is replica):
            replica.inbox.append((one, request, sent))
            self._wake(replica)

    def _wake(self, replica: _Replica) -> None:
        """Plan a replica's next step, when the one before has ended."""
        if not replica.is_awake:
            replica.is_awake = True
            self._plan(max(self._now, replica.clock.now()), _STEP, self._step, replica)

    # Replicas

    def _step(self, replica: _Replica) -> None:
        if replica.is_dead or self._is_over:
            return
        replica.is_awake = False
        engine, clock = replica.engine, replica.clock
        clock.advance(self._now - clock.now())  # it was idle
        for one, request, at in replica.inbox:
            self._take_in(replica, one, request, at)
        replica.inbox.clear()
        if engine.has_work():
            output = engine.step()
            self._plan(clock.now(), _TOKENS, self._pass_on, replica, output)
            self._wake(replica)
        for at, events in replica.feed.take():
            replica.news.append((at, events))
            self._plan(at + self._lag_us, _NEWS, self._deliver, replica, at)

    def _take_in(self, replica: _Replica, one: Input, request: int, at: int) -> None:
        live = self._live.get(request)
        if isinstance(one, Arrival):
            assert live is not None
            if live.move is not None:
                live.move.finish(replica.engine)
                live.move = None
            live.first = first = replica.engine.apply_arrival(one, at).id
            replica.requests |= dict.fromkeys(range(first, first + one.params.samples), request)
            self._dispatcher.placed(request, first, self._now)
        elif not isinstance(one, Abort):
            replica.engine.apply(one)
        elif live is not None and live.first is not None:
            replica.engine.abort(live.first + one.request)
            self._end_if_over(replica, request)

    def _pass_on(self, replica: _Replica, output: StepOutput) -> None:
        """Pass the tokens of a step on to the clients."""
        if replica.is_dead:
            return
        for tokens in output.tokens:
            request = replica.requests[tokens.request.id]
            self._dispatcher.first_token(request, self._now)
            live = self._live[request]
            if replica.role != "prefill" and live.arrival.params.samples == 1:
                live.output += tokens.ids
        ended = {replica.requests[finished.id]: None for finished in output.finished}
        for request in ended:
            self._end_if_over(replica, request)

    def _end_if_over(self, replica: _Replica, request: int) -> None:
        """End a request when none of its samples is left."""
        live = self._live[request]
        assert live.first is not None
        samples = range(live.first, live.first + live.arrival.params.samples)
        if not any(sample in replica.engine.requests for sample in samples):
            self._dispatcher.ended(request, self._now)
            for sample in samples:
                del replica.requests[sample]
            if replica.role == "prefill" and not live.is_aborted:
                self._hand_over(request, replica)
            else:
                del self._live[request]

    def _deliver(self, replica: _Replica, left_by: int) -> None:
        """Deliver the events that left a replica by a time."""
        while replica.news and replica.news[0][0] <= left_by:
            for event in replica.news.popleft()[1]:
                self._dispatcher.event(replica.id, replica.read, event, self._now)
                replica.read += 1

    def _stop(self, name: str) -> None:
        """Stop a replica. What it had sent still arrives; its unfinished step is lost."""
        replica = self._replicas[name]
        if not replica.is_dead:
            self._deliver(replica, self._now)
            replica.is_dead = True
            replica.news.clear()

    def _leave(self, name: str, why: str) -> None:
        """Send the requests of a replica that has stopped to others."""
        if name not in self._dispatcher.replicas:
            return
        for request in self._dispatcher.leave(name, why, self._now):
            if self._dispatcher.replicas or self._returns:
                self._route(request)
            else:
                self._dispatcher.lost(request, self._now, again=False)
                del self._live[request]

    def _return(self, name: str, start: Callable[[int], _Replica] | None) -> None:
        """Let a replica join again, as another engine or with the cache that it had."""
        self._returns -= 1
        old = self._replicas[name]
        if name in self._dispatcher.replicas:
            return
        if start is not None:
            replica = start(int(name))
        else:
            for request in list(old.engine.requests):
                old.engine.abort(request)
            old.feed.summarize()
            replica = _Replica(name, old.role, old.clock, old.feed, old.engine)
            replica.read = old.feed.next_seq - 1  # the keyframe has the last event's number
        replica.clock.skip_to(self._now)
        self.join(replica)
        parked, self._parked = self._parked, []
        for request in parked:
            self._route(request)
