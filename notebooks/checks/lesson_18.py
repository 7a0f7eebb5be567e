"""Lesson 18: which replica gets a request?"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from checks.answer import Answer
from checks.broken import Broken, Promises
from checks.guard import call
from checks.judging import listed
from engine import Cost, EngineConfig, SamplingParams
from engine.cluster import Decision, Replica, Router
from engine.cluster.block_index import BlockIndex
from engine.cluster.checked import RouterError
from engine.cluster.prefix_events import PrefixEvents
from engine.cluster.replica_tree import ReplicaTree
from engine.cluster.simulate_cluster import simulate_cluster
from engine.core.log.vocabulary import Event
from engine.simulation.workload import Arrival, Workload
from visualizer import read

Route = Callable[..., Any]
# (replica, blocks of the prompt, when it was sent in ms, whether the replica's events have reported it)
Sent = tuple[str, list[int], int, bool]

LOAD_LIMIT = 8  # with more requests, and more than twice the mean, a replica gets no more
GUESS_MS = 5_000  # a guess counts for so long
SHARE_OF_BEST = 0.9


ANSWERS = {
    "two": Answer(
        "about half",
        {
            "0.95": "It's clever about load but blind to prompts: every guide goes to both replicas.",
            "0.75": "Something would have to pull a guide's questions together, and nothing does.",
            "0.1": "Since each replica has room for four of the six guides, many questions are lucky.",
        },
        fits=lambda share: 0.45 < share < 0.6,
    ),
    "rush": Answer(
        "20 to 35",
        {
            "50 to 54": "They would if the router knew of a block once it's cached, but a log is late.",
            "36 to 49": "Only a guide's first questions are scattered. But their copies fill the "
            "memory, and other guides are evicted.",
            "none": "The log is late, but it does come, and the later questions find their guide.",
        },
        fits=lambda found: 20 <= found <= 35,  # it depends on the weights of the router
    ),
}
HINTS = (
    "Make a set for each replica in load: what is known of it, and the blocks of the rows in in_flight "
    "that still count. Then walk along the prompt's blocks, and stop at the first that is missing.",
    "Leave out the overloaded replicas first. Of the others, take the longest beginning, and where two "
    "are equally long, the smaller load: min() with a key of two numbers does both.",
)


class Promise(Promises):
    """The promises that the check tests."""

    ALIVE = "the answer is one of the replicas in load"
    OVERLOADED = "a replica with more than 8 requests, and more than twice the mean, gets no more"
    LONGEST = "at equal load, the replica with the longest cached beginning gets the request"
    BEGINNING = "a cached block counts only if all blocks before it are cached, too"
    GUESSED = "what was sent to a replica counts as cached until its events report it"
    REPORTED = "once the events have reported a prompt, only known says what is cached"
    OLD = "a guess counts for 5 seconds at most"
    LEAST = (
        "if equally long beginnings are cached, the replica with the smaller load gets the request"
    )
    SIX = "six prefixes: the hit rate is at least 0.9 of the best possible"


def adapt(route: Route | None) -> Callable[[], Router]:
    """Return a class of routers: the learner's if it passed."""
    return partial(YourRouter, route) if route else PrefixEvents


def cases() -> list["Choice | Run"]:
    """Return single decisions, the smallest first, and then two whole runs."""
    return [*choices(), *RUNS]


def attempt(route: Route, case: "Choice | Run") -> None:
    """Raise Broken for the first broken promise."""
    if isinstance(case, Choice):
        attempt_choice(route, case)
    else:
        attempt_run(route, case)


@dataclass(frozen=True)
class Choice:
    """One request, and what the router knows when it comes.

    known  replica -> blocks that its events have reported, without those evicted since
    sent   what the router sent lately; see Sent
    """

    blocks: tuple[int, ...]
    load: dict[str, int]
    known: dict[str, set[int]]
    sent: tuple[Sent, ...] = ()
    now: int = 10_000

    def __str__(self) -> str:
        load = listed(f"replica {one} has {count}" for one, count in self.load.items())
        words = f"A prompt of blocks {listed(self.blocks)}. Load: {load}."
        for replica, blocks in self.known.items():
            if blocks:
                words += f" Known of replica {replica}: {_blocks(blocks)}."
        for replica, sent, at, reported in self.sent:
            what = f"{_blocks(sent)}, {'reported' if reported else 'not reported'}"
            words += f" In flight: to replica {replica}, {self.now - at:,} ms ago, {what}."
        return words

    def hit(self, replica: str, *, guesses: str = "right") -> int:
        """Return how many leading blocks are or will be cached there.

        guesses  which rows of `sent` count: the right ones, "none", or also those that are "old" or
                 "reported"
        """
        cached = self.cached(replica, guesses)
        return next(
            (n for n, block in enumerate(self.blocks) if block not in cached), len(self.blocks)
        )

    def cached(self, replica: str, guesses: str = "right") -> set[int]:
        """Return the blocks that are or will be cached there."""
        cached = set(self.known.get(replica, ()))
        for other, blocks, at, reported in self.sent:
            old = self.now - at > GUESS_MS
            counts = (not old or guesses == "old") and (not reported or guesses == "reported")
            if other == replica and counts and guesses != "none":
                cached.update(blocks)
        return cached

    def has_holes(self, replica: str) -> bool:
        """Return whether known has a block of the prompt there, but not all blocks before it."""
        return len(self.known.get(replica, set()) & set(self.blocks)) > self.hit(
            replica, guesses="none"
        )

    def is_overloaded(self, replica: str) -> bool:
        """Return whether a replica may get no more."""
        return is_overloaded(self.load, replica)


def is_overloaded(load: dict[str, int], replica: str) -> bool:
    """Return whether a replica has more than 8 requests, and more than twice the mean."""
    return load[replica] > LOAD_LIMIT and load[replica] * len(load) > 2 * sum(load.values())


def _blocks(blocks: Sequence[int] | set[int]) -> str:
    return f"block{'s' if len(blocks) > 1 else ''} {listed(sorted(blocks))}"


def choices() -> list[Choice]:
    """Return single decisions, the smallest first."""
    chance = random.Random(17)
    found = list[Choice]()
    while len(found) < 600:
        replicas = [str(one) for one in range(chance.choice((1, 2, 2, 2, 3, 3)))]
        blocks = tuple(range(1, chance.randint(2, 5)))
        most = chance.choice((0, 1, 1, 3, 40))
        load = {one: chance.choice((0, 1, most, most)) for one in replicas}
        gone = chance.choice(([], [], ["3"]))
        known = {one: _some_blocks(chance, blocks) for one in [*replicas, *gone]}
        sent = [
            _guess(chance, blocks, [*replicas, *gone]) for _ in range(chance.choice((0, 0, 1, 2)))
        ]
        chance.shuffle(replicas)
        one = Choice(blocks, {name: load[name] for name in replicas}, known, tuple(sent))
        # What is known and what is guessed never fill each other's holes: both ways to count agree.
        if all(_is_clear(one, replica) for replica in replicas):
            found.append(one)
    return sorted(found, key=_size)


def _size(one: Choice) -> tuple[int, ...]:
    holes = sum(one.has_holes(replica) for replica in one.known)
    replicas = (len(one.load), len(one.known), max(one.load.values()))
    return (len(one.sent), holes, *replicas, len(one.blocks), sum(map(len, one.known.values())))


def _some_blocks(chance: random.Random, blocks: tuple[int, ...]) -> set[int]:
    kind = chance.choice(("none", "beginning", "beginning", "holes"))
    if kind == "none":
        return set()
    if kind == "beginning":
        return {*blocks[: chance.randint(1, len(blocks))], *chance.sample(range(50, 60), 1)}
    return set(chance.sample(blocks, chance.randint(1, len(blocks))))


def _guess(chance: random.Random, blocks: tuple[int, ...], replicas: list[str]) -> Sent:
    replica, age = chance.choice(replicas), chance.choice((20, 45, 400, 3_000, 4_900, 5_200, 9_000))
    prompt = [*blocks[: chance.randint(1, len(blocks))], *([70] * chance.randint(0, 1))]
    return replica, prompt, 10_000 - age, chance.random() < 0.25


def _is_clear(one: Choice, replica: str) -> bool:
    known = one.hit(replica, guesses="none")
    guessed = Choice(one.blocks, one.load, {}, one.sent, one.now).hit(replica)
    return one.hit(replica) == max(known, guessed)


def attempt_choice(route: Route, one: Choice) -> None:
    """Raise Broken if another replica was at least as good in everything, and better in something."""
    sent = [(replica, list(blocks), at, seen) for replica, blocks, at, seen in one.sent]
    known = {replica: set(blocks) for replica, blocks in one.known.items()}
    chosen = call(route, list(one.blocks), dict(one.load), known, sent, one.now)
    _must_be_alive(chosen, one.load)
    did = f"You chose replica {chosen}."
    if one.is_overloaded(chosen):
        raise Promise.OVERLOADED.broken(did, _crowd(one.load, chosen))
    hit, load = one.hit(chosen), one.load[chosen]
    for other in one.load:
        if not one.is_overloaded(other) and one.hit(other) >= hit and one.load[other] <= load:
            if one.hit(other) > hit:
                raise _shorter(one, did, chosen, other)
            if one.load[other] < load:
                raise _fuller(one, did, chosen, other)


def _must_be_alive(chosen: Any, load: dict[str, int]) -> None:
    if not isinstance(chosen, str) or chosen not in load:
        alive = listed(map(repr, load))
        raise Promise.ALIVE.broken(
            f"You returned {chosen!r}.",
            f"The replicas in load are {alive}. Any other has left, even if known still names it."
            if len(load) > 1
            else f"The only replica in load is {alive}.",
        )


def _crowd(load: dict[str, int], replica: str) -> str:
    mean = sum(load.values()) / len(load)
    return f"Replica {replica} has {load[replica]} requests. The mean is {mean:.3g}."


def _shorter(one: Choice, did: str, chosen: str, other: str) -> Broken:
    """Return what is wrong if `other` has a longer beginning."""
    better = one.hit(other)
    loads = f"Load: {one.load[chosen]} and {one.load[other]}."
    if misread := _misread(one, did, chosen, other):
        return misread
    if one.hit(other, guesses="none") < better:
        age = min(
            one.now - at
            for replica, blocks, at, reported in one.sent
            if replica == other and not reported and tuple(blocks[:better]) == one.blocks[:better]
        )
        look = (
            f"You sent {_first(better)} of this prompt to replica {other}, {age:,} ms ago. {loads}"
        )
        return Promise.GUESSED.broken(did, look)
    mine = _first(one.hit(chosen))
    look = f"Replica {chosen} has {mine} of the prompt, replica {other} {_first(better)}. {loads}"
    return Promise.LONGEST.broken(did, look)


def _fuller(one: Choice, did: str, chosen: str, other: str) -> Broken:
    """Return what is wrong if `other` has an equally long beginning, and a smaller load."""
    look = (
        f"Both have {_first(one.hit(chosen))} of the prompt. Replica {chosen} has a load of "
        f"{one.load[chosen]}, replica {other} of {one.load[other]}."
    )
    return _misread(one, did, chosen, other) or Promise.LEAST.broken(did, look)


def _misread(one: Choice, did: str, chosen: str, other: str) -> Broken | None:
    """Return what is wrong if the part seems to have seen more on `chosen` than is cached there."""
    hit, better = one.hit(chosen), one.hit(other)
    for replica, blocks, at, reported in one.sent:
        age = f"{one.now - at:,} ms"
        if replica == chosen and reported and one.hit(chosen, guesses="reported") > hit:
            gone = set(blocks) & set(one.blocks) - one.known.get(chosen, set())
            look = (
                f"Its events have reported that prompt. By now known has no {_blocks(gone)} there: "
                "evicted."
            )
            return Promise.REPORTED.broken(did, look)
        if replica == chosen and one.hit(chosen, guesses="old") > hit and one.now - at > GUESS_MS:
            look = f"You sent those blocks to replica {chosen} {age} ago, and no event has come."
            return Promise.OLD.broken(did, look)
    mine, others = (one.cached(name) & set(one.blocks) for name in (chosen, other))
    if len(mine) > hit and len(mine) >= max(better, len(others)):
        look = (
            f"Replica {chosen} has {_blocks(mine)}, but not block {one.blocks[hit]}. The KV of a block "
            "depends on all tokens before it."
        )
        return Promise.BEGINNING.broken(did, look)
    return None


def _first(count: int) -> str:
    return {0: "no block", 1: "the first block"}.get(count, f"the first {count} blocks")


@dataclass(frozen=True)
class Run:
    """A whole run on the simulator, with room for all prefixes in each replica."""

    prefixes: int
    each: int  # requests of a prefix
    per_second: float
    replicas: int = 4
    prefix: int = 128  # tokens
    output: int = 16

    def __str__(self) -> str:
        which = "one prefix" if self.prefixes == 1 else f"each of {self.prefixes} prefixes"
        return (
            f"{self.replicas} replicas, {self.each} requests with {which} of {self.prefix} tokens, "
            f"{self.per_second:g} a second."
        )

    def workload(self) -> Workload:
        """Return the requests, in random order. Each has 24 tokens of its own."""
        chance = random.Random(self.prefixes)
        order = [one for one in range(self.prefixes) for _ in range(self.each)]
        chance.shuffle(order)
        at_ms, arrivals = 0.0, []
        for prefix in order:
            at_ms += chance.expovariate(self.per_second) * 1000
            prompt = [97 + prefix] * self.prefix + chance.choices(range(48, 58), k=24)
            params = SamplingParams(max_tokens=self.output)
            arrivals.append(Arrival(at_ms=at_ms, prompt=prompt, params=params, label=f"{prefix}"))
        return Workload(list(arrivals))


RUNS = (
    Run(prefixes=6, each=8, per_second=20),
    Run(prefixes=1, each=120, per_second=150, prefix=96),
)
SETTINGS = EngineConfig(block_size=16, max_kv_tokens=8_192, max_batch_size=8, token_budget=256)
MACHINE = Cost(10, 0.2)


def attempt_run(route: Route, run: Run) -> None:
    """Run a workload, and compare its hit rate with the best possible one.

    The best possible one computes each prefix once. A request for an overloaded replica ends the run.
    """
    router = YourRouter(lambda *given: call(route, *given), is_strict=True)
    try:
        log = simulate_cluster(
            run.workload(), SETTINGS, cost=MACHINE, replicas=run.replicas, router=router
        )
    except RouterError as error:
        raise error.__cause__ or error from None
    rows = read(log).decision_rows
    found = sum(row.cached_tokens or 0 for row in rows)
    best = run.prefixes * (run.each - 1) * run.prefix
    if found < SHARE_OF_BEST * best:
        asked = sum(row.prompt_tokens for row in rows)
        homes = [
            sum(row.label == "0" and row.replica == one for row in rows) for one in log.replicas
        ]
        raise Promise.SIX.broken(
            f"{found / asked:.0%} of the prompt tokens were cached. {best / asked:.0%} are possible.",
            f"Of the {run.each} requests of one prefix, the replicas got {listed(homes)}. Each replica "
            "computes the prefix anew.",
        )


class YourRouter(Router):
    """A router that asks a learner's function. What is known comes from the replicas' events.

    is_strict  raise Broken if the function sends a request to an overloaded replica
    """

    name = "yours"

    def __init__(self, route: Route, *, is_strict: bool = False) -> None:
        self._route, self._is_strict = route, is_strict
        self._known = _Known()
        self._trees: dict[str, ReplicaTree] = {}
        self._block_size = 1
        self._sent: list[list[Any]] = []  # rows of Sent

    def choose(
        self, request: int, tokens: Sequence[int], replicas: Sequence[Replica], now_us: int
    ) -> Decision:
        """Return the replica that the function names."""
        blocks, now = self._blocks(tokens, replicas[0].id), now_us // 1000
        load = {one.id: one.in_flight for one in replicas}
        known = {one: set(keys) for one, keys in self._known.of.items()}
        sent = [(one, list(keys), at, seen) for one, keys, at, seen in self._sent]
        chosen = self._route(list(blocks), dict(load), known, sent, now)
        _must_be_alive(chosen, load)
        if self._is_strict and is_overloaded(load, chosen):
            did = f"You sent request {request} to replica {chosen}."
            raise Promise.OVERLOADED.broken(did, _crowd(load, chosen))
        seen = Choice(tuple(blocks), load, known, tuple(sent), now)
        hits = {one: seen.hit(one) * self._block_size for one in load}
        return Decision(chosen, "longest_prefix" if hits[chosen] else "least_loaded", hits)

    def on_routed(self, request: int, tokens: Sequence[int], replica: str, now_us: int) -> None:
        """Remember what was sent. After twice the life of a guess, it is dropped."""
        blocks, now = self._blocks(tokens, replica), now_us // 1000
        self._sent = [row for row in self._sent if now - row[2] <= 2 * GUESS_MS]
        reported = self._known.of[replica].issuperset(blocks)
        self._sent.append([replica, blocks, now, reported])

    def on_event(self, replica: str, event: Event, now_us: int) -> None:
        """Fold the event. What was sent is reported once its last block is in the tree."""
        new = set(self._trees[replica].apply(event))
        for row in self._sent:
            row[3] = row[3] or (row[0] == replica and not new.isdisjoint(row[1][-1:]))

    def on_joined(self, replica: str, block_size: int) -> None:
        """Begin with an empty tree."""
        self._known.join(replica, block_size)
        self._trees[replica] = ReplicaTree(replica, self._known)
        self._block_size = block_size

    def on_left(self, replica: str) -> None:
        """Forget its tree. The function may still get what was sent there."""
        self._trees.pop(replica).clear()
        self._known.leave(replica)

    def _blocks(self, tokens: Sequence[int], replica: str) -> list[int]:
        """Return the keys of the blocks that can be found: one token is always computed."""
        return self._known.keys_on(replica, self._known.keys(tokens[:-1]))


class _Known(BlockIndex):
    """An index that can list a replica's blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, set[int]] = {}

    def join(self, replica: str, block_size: int) -> None:
        super().join(replica, block_size)
        self.of[replica] = set()

    def leave(self, replica: str) -> None:
        super().leave(replica)
        del self.of[replica]

    def add(self, replica: str, keys: Iterable[int]) -> None:
        self.of[replica].update(keys)

    def discard(self, replica: str, keys: Iterable[int]) -> None:
        self.of[replica].difference_update(keys)
