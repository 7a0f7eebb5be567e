"""Play a workload on several simulated machines behind a router: one cluster log.

Each replica is an engine on a virtual clock of its own, which stands for the same time. The simulation
takes what happens next, on whichever replica, from one queue that is ordered by time:

    news    events of a replica reach the gateway, `lag_ms` after they happened
    tokens  a step ended: its tokens pass through the gateway
    move    the KV of a prompt has arrived at its decode replica (`roles.py`)
    death   a replica dies in the middle of its step
    input   a request arrives at the gateway, is routed, and arrives at its replica at once
    step    a replica takes in what arrived while it was computing, and runs the next step

What happens at the same time happens in this order. As in `simulate`, a step runs as a whole when it
starts, because nothing can change it any more: its events and its tokens become known later.

Differs from a real cluster: routing takes no time, and the way to a replica neither.
"""

import copy
import dataclasses
import gc
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from engine.cluster.cluster_log import ClusterLog
from engine.cluster.dispatcher import Dispatcher
from engine.cluster.events import Controlled, Moved
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
from engine.simulation.workload import Abort, Arrival, Clear, Input, Workload

_NEWS, _TOKENS, _MOVE, _DEATH, _INPUT, _STEP = range(6)


def simulate_cluster(
    workload: Workload,
    config: EngineConfig | None = None,
    *,
    cost: Cost | CostRunner,
    replicas: int = 2,
    router: Router | str = "prefix_events",
    lag_ms: float = 50.0,
    roles: Roles | None = None,
    fail: Mapping[str, float] | None = None,
    log: ClusterLog | None = None,
    **parts: Any,
) -> ClusterLog:
    """Serve a whole workload with several replicas, and return the log of all of them.

    config    the settings of every replica; their ids are "0", "1", ...
    cost      the prices of a step, or a CostRunner of your own; every replica gets a copy
    router    a name (`engine.cluster.ROUTERS`), or a new Router of your own
    lag_ms    how long an event takes from a replica to the router
    roles     how many replicas prefill, and how many decode, instead of `replicas`
    fail      replica -> when it dies, in ms
    log       where to write, for example a ClusterLog with a window for a long run
    parts     passed on to every `Engine`, as copies: policy, pool, tree, eviction, drafter

    The inputs must come at times, in order. Requests are numbered from 1, one number per sample. Raises
    RequestError for a request that these settings could never serve, RouterError for a mistake of a
    router of your own, and NoReplicaError if a request finds no replica alive that decodes.
    """
    if not isinstance(replicas, int) or replicas < 1:
        raise ValueError(f"replicas must be a whole number of at least 1, got {replicas!r}")
    if not lag_ms >= 0:
        raise ValueError(f"lag_ms must be at least 0, got {lag_ms!r}")
    cluster = _Cluster(
        router, ClusterLog() if log is None else log, round(lag_ms * US_PER_MS), roles
    )
    config = checked(config)
    for number in range(replicas if roles is None else roles.prefill + roles.decode):
        runner = copy.deepcopy(cost) if isinstance(cost, CostRunner) else CostRunner(**asdict(cost))
        role, feed = "" if roles is None else roles.of(number), _Feed(runner.clock)
        engine = ReplayEngine(runner, config, workload, log=feed, **copy.deepcopy(parts))
        cluster.join(_Replica(str(number), role, runner.clock, feed, engine))
    for name, at_ms in (fail or {}).items():
        cluster.plan_death(name, round(at_ms * US_PER_MS))
    with _seldom_collecting():
        cluster.run(workload)
    return cluster.log


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Let Python look for cycles a hundredth as often, because looking is a sixth of the work."""
    often = gc.get_threshold()
    gc.set_threshold(100 * often[0], *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)


class _Feed(EventLog):
    """The log of an engine, which the gateway reads: events in batches of the same time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
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

    def take(self) -> list[tuple[int, list[Event]]]:
        """Return the batches since the last call, each with its time."""
        unread, self._unread = self._unread, []
        return unread


@dataclass(slots=True, eq=False)
class _Replica:
    """An engine with its inbox.

    inbox     inputs that the engine takes in before its next step: (input, the cluster's number of its
              request, when it came)
    requests  the engine's request id -> the cluster's number, for each sample
    news      batches of events on their way to the gateway, each with the time at which it left
    read      the number of events that reached the gateway
    is_awake  a step is planned
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

    def join(self, replica: _Replica) -> None:
        """Add a replica at time 0. Its first event, run_started, is known at once."""
        self._replicas[replica.id] = replica
        self._dispatcher.join(replica.id, replica.engine.config.block_size, 0, role=replica.role)
        replica.news += replica.feed.take()
        self._deliver(replica, 0)

    def plan_death(self, name: str, at: int) -> None:
        """Let a replica die at a time. Raises ValueError for an unknown one."""
        if name not in self._replicas:
            known = ", ".join(self._replicas)
            raise ValueError(f"fail: there is no replica {name!r}; the replicas are {known}")
        self._plan(at, _DEATH, self._die, self._replicas[name])

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
                request = self._next_request
                self._next_request += one.params.samples
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
            case _:
                raise ValueError(
                    f"a cluster cannot play {type(one).__name__}: a held prefix belongs to one replica"
                )
        self._plan_next_input(inputs)

    def _route(self, request: int) -> None:
        """Route a request: with roles, to a replica that computes its prompt."""
        live = self._live[request]
        live.move = None
        if live.output:
            live.arrival = dataclasses.replace(live.arrival, begun=Begun(0, list(live.output)))
        if self._prefills_elsewhere(live.arrival):
            self._send(self._choose(request, "prefill"), prefill_of(live.arrival), request)
        else:
            self._send(self._choose(request, "decode"), live.arrival, request)

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
        """Return the replicas with a role that are alive."""
        every = self._replicas.values()
        return [one.id for one in every if one.role == role and not one.is_dead]

    def _hand_over(self, request: int, source: _Replica) -> None:
        """Choose a decode replica for a computed prompt, and move its blocks there."""
        assert self._roles is not None
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
        if not replica.is_dead:
            replica.inbox.append((one, request, self._now))
            self._wake(replica)

    def _wake(self, replica: _Replica) -> None:
        """Plan a replica's next step, when the one before has ended."""
        if not replica.is_awake:
            replica.is_awake = True
            self._plan(max(self._now, replica.clock.now()), _STEP, self._step, replica)

    # Replicas

    def _step(self, replica: _Replica) -> None:
        if replica.is_dead:
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
        elif isinstance(one, Clear):
            replica.engine.apply(one)
        elif isinstance(one, Abort) and live is not None and live.first is not None:
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

    def _die(self, replica: _Replica) -> None:
        """Let a replica die. What it had sent still arrives; its unfinished step is lost."""
        if replica.is_dead:
            return
        self._deliver(replica, self._now)
        replica.is_dead = True
        replica.news.clear()
        is_alive = any(not one.is_dead for one in self._replicas.values())
        for request in self._dispatcher.leave(replica.id, "it died", self._now):
            if is_alive:
                self._route(request)
            else:
                self._dispatcher.lost(request, self._now, again=False)
                del self._live[request]
