"""Random workloads for the engine without a model, and the loop that plays one.

The seeded generator aims at what breaks schedulers: memories of a few blocks, shared prefixes that end
inside an edge, late arrivals that are more urgent, samples that fork off a partly filled block, drafts,
forced tokens, aborts in every state and forward passes that fail.
"""

import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from engine import Engine, EngineConfig, EventLog, RequestError, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.log import vocabulary as v
from engine.core.request import Request
from engine.core.runner import Row, Sampled
from engine.core.speculation.drafter import Drafter
from engine.extensions.draft_model import DraftModel
from engine.extensions.kv_transfer import Pages
from engine.extensions.resumption import Begun
from engine.simulation.checking_runner import CheckingRunner, prefix_hashes
from engine.simulation.cost_runner import CostRunner, VirtualClock
from engine.simulation.pipelined_loop import PipelinedLoop

TOKENIZER = ByteTokenizer()
EOS = min(TOKENIZER.eos_ids)
CALL_START = TOKENIZER.token_id("<|python_start|>")
CALL_END = TOKENIZER.token_id("<|python_end|>")
FORCED = {TOKENIZER.token_id("<|output_start|>"), TOKENIZER.token_id("<|output_end|>")}
# Found by the soak: a policy's order that changed within a step, drafts behind a refund, a victim that
# awaited a token.
ONCE_FAILED = (3136, 3425, 6459, 434)
POLICY_DRAW = ("fcfs", "fcfs", "priority", "priority", "sjf", "lpm")


@dataclass
class Arrival:
    step: int  # submitted before this step
    prompt: list[int]
    params: SamplingParams
    priority: int = 0
    label: str = ""
    adapter: str = ""
    cache_salt: str = ""
    begun: float = 0.0  # how much of its output another engine has generated

    def begun_in(self, engine: Engine) -> Begun | None:
        """The output so far of one of the prompt's samples, without half an answer of the tool."""
        if not self.begun:
            return None
        sample = int(100 * self.begun) % 3
        seed = (engine._next_id if self.params.seed is None else self.params.seed) + sample
        output, _ = reference(self.prompt, self.params, seed if self.params.temperature else 0)
        end = int(self.begun * len(output))
        while end < len(output) and FORCED & {*output[max(0, end - 1) : end], output[end]}:
            end += 1
        return Begun(sample, output[:end])


@dataclass
class Workload:
    config: EngineConfig
    arrivals: list[Arrival]
    aborts: list[tuple[int, int]] = field(default_factory=list)  # before step, n-th request id
    failures: set[int] = field(default_factory=set)  # steps whose forward pass raises
    draft_length: int = 0
    draft_model: bool = False  # whether a second model drafts
    draft_failures: set[int] = field(default_factory=set)  # its passes that raise
    holds: list[tuple[int, int]] = field(default_factory=list)  # before step, n-th request so far
    releases: list[tuple[int, int]] = field(default_factory=list)  # before step, n-th hold
    pauses: list[tuple[int, int]] = field(default_factory=list)  # (before step, before step)
    # (before step, n-th arrival, blocks of its prompt that are not sent)
    moves: list[tuple[int, int, int]] = field(default_factory=list)
    window: int | None = None  # of sliding layers, in tokens
    depth: int = 1  # batches in flight in a pipeline


def next_token(tokens: Sequence[int], seed: int) -> int:
    """A pretended model: now and then it stops or calls the calculator, and it repeats itself."""
    if tokens[-1] == CALL_START:
        return ord("7")
    if len(tokens) > 1 and tokens[-2] == CALL_START:
        return CALL_END
    draw = hash((tuple(tokens[-6:]), seed)) % 97
    if draw < 4:
        return EOS
    if draw < 10:
        return CALL_START
    return 97 + draw % 3


def reference(prompt: Sequence[int], params: SamplingParams, seed: int) -> tuple[list[int], str]:
    """The plain loop: one request alone, one token after the other, no cache, no batch.

    Returns the output's ids and its text.
    """
    ends = set(params.stop_token_ids) | (set() if params.ignore_eos else {EOS})
    tokens, output, head, tail = list(prompt), list[int](), "", ""
    forced = list[int]()
    while len(output) < params.max_tokens:
        is_forced = bool(forced)
        token = forced.pop(0) if forced else next_token(tokens, seed)
        tokens.append(token)
        output.append(token)
        piece = "" if token == EOS else TOKENIZER.decode([token])
        if len(output) <= params.min_tokens:
            head += piece
        elif token in ends:
            break
        else:
            tail += piece
            tail, stop = first_stop(tail, params.stop)
            if stop:
                break
        if token == CALL_END and tokens[-3:-1] == [CALL_START, ord("7")] and not is_forced:
            forced = [TOKENIZER.token_id("<|output_start|>"), ord("7")]
            forced.append(TOKENIZER.token_id("<|output_end|>"))
    return output, head + tail


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """Read character by character until a stop string is complete: the text before it, and it."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, ""


class HalfRightDrafter:
    """Proposes what the model will say, with a mistake now and then."""

    def __init__(self, length: int) -> None:
        self.length = length

    def propose(self, request: Request) -> list[int]:
        tokens = list(request.tokens)
        seed = 0 if request.params.temperature == 0 else request.seed + request.sample
        for _ in range(self.length):
            tokens.append(draft_token(tokens, seed))
        return tokens[len(request.tokens) :]


def draft_token(tokens: Sequence[int], seed: int) -> int:
    """A pretended draft model: it agrees with the other one most of the time."""
    token = next_token(tokens, seed)
    return 97 + (token + 1) % 3 if hash((tuple(tokens), -7)) % 4 == 0 else token


class FailingRunner(CheckingRunner):
    """A checking runner that raises in chosen forward passes."""

    def __init__(self, failures: set[int], window: int | None = None, model=next_token) -> None:
        super().__init__(model, window=window)
        self.failures = failures
        self.passes = 0

    def run(self, rows: Sequence[Row], copies: Sequence[tuple[int, int]]) -> list[list[Sampled]]:
        self.passes += 1
        if self.passes in self.failures:
            raise RuntimeError("the forward pass was told to fail")
        return super().run(rows, copies)


def make_engine(workload: Workload, log: EventLog | None = None, **parts: object) -> Engine:
    config = workload.config
    if {"tree", "eviction"} & parts.keys() and config.prefix_cache == "hash":
        config = msgspec.structs.replace(config, prefix_cache="radix")
    drafter: Drafter | None = None
    if workload.draft_length and workload.draft_model:
        draft = FailingRunner(workload.draft_failures, model=draft_token)
        drafter = DraftModel(draft, workload.draft_length)
    elif workload.draft_length:
        drafter = HalfRightDrafter(workload.draft_length)
    has_tiers = config.host_kv_tokens + config.disk_kv_tokens > 0
    engine = Engine(
        FailingRunner(workload.failures, workload.window),
        config,
        tokenizer=TOKENIZER,
        log=log,
        drafter=drafter,
        # On a virtual clock, a pass in flight runs as soon as it starts: deterministic.
        clock=VirtualClock()
        if config.async_scheduling or has_tiers or workload.depth > 1
        else None,
        **parts,
    )
    if has_tiers:
        draw = random.Random(config.host_kv_tokens)
        engine.tiers.choose = lambda fetch, _: draw.choice([0, len(fetch) // 2, *[len(fetch)] * 4])
    if workload.depth > 1:
        engine.loop = PipelinedLoop(engine.loop, workload.depth)
    return engine


def play(engine: Engine, workload: Workload, after_step=lambda engine: None) -> list[Request]:
    """Run a workload to its end; returns every request, samples included, refused ones left out."""
    pending = sorted(workload.arrivals, key=lambda arrival: arrival.step)
    prompts, moves = [one.prompt for one in pending], sorted(workload.moves)
    aborts, holds, releases = (
        sorted(planned) for planned in (workload.aborts, workload.holds, workload.releases)
    )
    for name in sorted({arrival.adapter for arrival in pending} - {""}):
        engine.adapters.add(name, name)
    seen: dict[int, Request] = {}
    step, limit = 1, 60 * (len(pending) + 1) * max(1, max(a.params.max_tokens for a in pending))
    while pending or engine.has_work():
        while pending and pending[0].step <= step:
            arrival = pending.pop(0)
            try:
                engine.submit(
                    arrival.prompt,
                    arrival.params,
                    priority=arrival.priority,
                    label=arrival.label,
                    adapter=arrival.adapter,
                    cache_salt=arrival.cache_salt,
                    begun=arrival.begun_in(engine),
                )
            except RequestError:
                continue  # could never be served; the engine said so
        while aborts and aborts[0][0] <= step:
            ids = sorted(engine.requests)
            index = aborts.pop(0)[1]
            if ids:
                engine.abort(ids[index % len(ids)])
        seen |= engine.requests
        if engine.paused and step in [end for _, end in workload.pauses]:
            engine.resume()
        if step in [begin for begin, _ in workload.pauses]:
            engine.pause()
        while holds and holds[0][0] <= step:
            index = holds.pop(0)[1]
            if seen:
                engine.holds.hold(seen[sorted(seen)[index % len(seen)]].tokens)
        while releases and releases[0][0] <= step:
            index = releases.pop(0)[1]
            if engine.holds.live:
                engine.holds.release(sorted(engine.holds.live)[index % len(engine.holds.live)])
        while moves and moves[0][0] <= step:
            _, index, first = moves.pop(0)
            move(engine, prompts[index % len(prompts)], first)
        output = engine.step()
        seen |= {gained.request.id: gained.request for gained in output.tokens}
        after_step(engine)
        step += 1
        assert step < limit, "the workload does not end: a request starves"
    engine.resume()
    for hold in list(engine.holds.live):
        engine.holds.release(hold)
    return [request for _, request in sorted(seen.items())]


def finish(engine: Engine, after_step=lambda engine: None) -> dict[int, Request]:
    """Step until no request is left. Return all requests that were live, by id."""
    seen = dict(engine.requests)
    while engine.has_work():
        seen |= {request.id: request for request in engine.step().finished} | engine.requests
        after_step(engine)
    return seen


@contextmanager
def named(seed: int) -> Iterator[None]:
    """Name the seed of a workload whose check fails."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"workload of seed {seed} fails; repeat with --seed {seed}") from error


def simulated(base_ms: float = 10, per_token_ms: float = 1, **settings: object) -> Engine:
    """Return an engine on a simulated machine, with these settings."""
    runner = CostRunner(base_ms, per_token_ms)
    return Engine(runner, EngineConfig(**settings), clock=runner.clock)


def windowed(events: Iterable[v.Event], size: int) -> EventLog:
    """Return a log that has kept the latest events only."""
    log = EventLog(size)
    for event in events:
        log.append(event)
    return log


def random_log(seed: int, log: EventLog | None = None, *, may_be_async: bool = False) -> EventLog:
    """Return the log of a random workload."""
    workload = random_workload(seed, may_be_async=may_be_async)
    engine = make_engine(workload, log)
    play(engine, workload)
    return engine.log


def move(engine: Engine, tokens: list[int], first: int) -> None:
    """Adopt what another engine would have computed, and compare it with what is exported then."""
    size = engine.config.block_size
    end = len(tokens) // size
    computed = pages_of(engine, tokens[: end * size])
    page = engine.kv_transfer.pages.kv_format().page_bytes
    here = engine.kv_transfer.cached_blocks(tokens)
    adopted = engine.kv_transfer.adopt(tokens, computed[min(first, end) * page :], first=first)
    exported = engine.kv_transfer.export(tokens)
    if exported.blocks or not engine.is_in_flight:  # else the pass in flight has failed
        cached = engine.kv_transfer.cached_blocks(tokens)
        assert here + adopted == cached >= exported.blocks
        assert exported.blocks == cached or engine.cache.pages
    if engine.cache.pages:
        check_windows(engine, exported, computed)
    else:
        assert exported.data == computed[: exported.blocks * page]
    assert here >= first or not adopted, "a hole"


def pages_of(engine: Engine, tokens: list[int]) -> bytes:
    """The pages of a checking runner that has computed these tokens."""
    size, hashes = engine.config.block_size, array("q", prefix_hashes(tokens))
    # Once more for sliding layers, or for the draft model.
    copies = 1 + (engine.cache.pages is not None) + isinstance(engine.drafter, DraftModel)
    blocks = [hashes[begin : begin + size] for begin in range(0, len(hashes), size)]
    return b"".join(block.tobytes() * copies for block in blocks)


def check_windows(engine: Engine, exported: Pages, computed: bytes) -> None:
    """What is exported is right where it counts: for sliding layers, in the window before its end."""
    size = engine.config.block_size
    first = max(exported.blocks * size - engine.runner.window + 1, 0)
    copies = 2 + isinstance(engine.drafter, DraftModel)
    for begin in range(0, len(exported.data), 8 * size):
        block, copy = divmod(begin // (8 * size), copies)
        if copy != 1 or block >= first // size:  # the second is that of the sliding layers
            assert exported.data[begin : begin + 8 * size] == computed[begin : begin + 8 * size]


def with_ends(params: SamplingParams, rng: random.Random) -> SamplingParams:
    """The same, now and then with stops, min_tokens or a scored prompt."""
    return msgspec.structs.replace(
        params,
        min_tokens=rng.choice([0, 0, 0, 2, params.max_tokens]) if params.max_tokens > 1 else 0,
        stop=tuple(rng.choice(["ab", "cc", "abc", "|>a"]) for _ in range(rng.choice([0, 0, 1, 2]))),
        stop_token_ids=rng.choice([(), (), (), (98,)]),
        prompt_logprobs=rng.choice([None] * 9 + [0]),
    )


def sliding_workload(seed: int) -> Workload:
    """Return a workload for a model with sliding layers, whose window memory is small."""
    rng, workload = random.Random(f"{seed}: window"), random_workload(seed, may_be_async=True)
    size, blocks = workload.config.block_size, workload.config.num_blocks * rng.choice([1, 2, 4])
    workload.config = msgspec.structs.replace(
        workload.config,
        max_kv_tokens=size * blocks,
        max_batch_size=rng.choice([1, 1, 2, 3]),
        token_budget=rng.choice([1, 2, 3, 5, 8]),
    )
    workload.window = rng.choice([1, 2, 3, 4, 5, 8, 13])
    return workload


def tiered_workload(seed: int) -> Workload:
    """Return a workload with memory below the GPU, small enough to be full."""
    rng, workload = random.Random(f"{seed}: tiers"), random_workload(seed)
    size, blocks = workload.config.block_size, workload.config.num_blocks
    host, disk = rng.choice([(1, 0), (0, 1), (1, 1), (1, 1)])
    cache = workload.config.prefix_cache
    workload.config = msgspec.structs.replace(
        workload.config,
        prefix_cache="radix" if cache == "off" else cache,
        host_kv_tokens=host * size * rng.choice([1, 2, blocks, 2 * blocks]),
        disk_kv_tokens=disk * size * rng.choice([1, 3, blocks, 4 * blocks]),
        kv_write=rng.choice(["write_back", "write_through"]),
    )
    # Conversations: later prompts go on where earlier ones ended.
    first = [one for one in workload.arrivals if len(one.prompt) > size]
    for one in first:
        again = msgspec.structs.replace(one.params, prompt_logprobs=None)
        step = one.step + rng.randint(8, 40)
        workload.arrivals.append(Arrival(step, one.prompt, again, one.priority, one.label))
    if workload.draft_failures:
        workload.draft_model = False  # a page may lack the draft model's KV
    return workload


def adapter_workload(seed: int) -> Workload:
    """Return a workload whose requests have adapters, more than there are slots, and salts."""
    rng, workload = random.Random(f"{seed}: adapters"), random_workload(seed, may_be_async=True)
    if seed % 3 == 0:
        workload = tiered_workload(seed)
    workload.config = msgspec.structs.replace(workload.config, max_loras=rng.choice([1, 1, 2, 3]))
    for arrival in workload.arrivals:
        arrival.adapter = rng.choice(["", "x", "y", "z"])
        arrival.cache_salt = rng.choice(["", "", "salt"])
    return workload


def random_workload(
    seed: int, *, may_be_async: bool = False, may_be_begun: bool = False
) -> Workload:
    """Return the workload of a seed. With `may_be_async`, about one in three schedules ahead; with
    `may_be_begun`, another engine has begun about one in seven requests."""
    rng = random.Random(seed)
    # Drawn apart, so that a seed that once failed still gives the workload that it failed on.
    more = random.Random(f"{seed}: labels, fairness, eviction")
    apart = random.Random(f"{seed}: holds")
    caches = random.Random(f"{seed}: caches, admissions")
    begun = random.Random(f"{seed}: begun elsewhere")
    block_size = rng.choice([1, 2, 3, 4, 8])
    blocks = rng.choice([4, 5, 6, 8, 10, 14, 24, 60])
    budget = rng.choice([1, 2, 3, 5, 8, 16, 32, 64])
    config = dict(
        token_budget=budget,
        max_batch_size=rng.choice([1, 2, 3, 4, 8]),
        max_kv_tokens=blocks * block_size,
        block_size=block_size,
        policy=more.choice([rng.choice(POLICY_DRAW)] * 4 + ["fair"]),
        batching=rng.choice(["continuous"] * 4 + ["static"]),
        chunked_prefill=rng.random() < 0.8,
        prefix_cache=caches.choice(["radix", "hash"]) if rng.random() < 0.8 else "off",
        preemption=rng.random() < 0.85,
        eviction=more.choice(["lru", "lfu"]),
        admission=caches.choice(["first_chunk", "whole"]),
    )
    if config["prefix_cache"] == "hash":
        config["eviction"] = "lru"  # the only order of its queue
    limits = random.Random(f"{seed}: limits")
    if limits.random() < 0.2 and seed not in ONCE_FAILED:
        config["watermark"] = limits.choice([0.0, 0.1, 0.3])
        config["long_prefill_token_threshold"] = limits.choice([0, 1, 2, 5])
        config["long_prefill_token_threshold_adaptive"] = limits.random() < 0.5
    config = EngineConfig(**config)
    room = blocks * block_size
    stems = [[97 + rng.randrange(3) for _ in range(rng.randint(1, room))] for _ in range(3)]
    arrivals = []
    for number in range(rng.randint(1, 9)):
        stem = rng.choice(stems)
        prompt = stem[: rng.randint(1, len(stem))]
        prompt = prompt + [97 + rng.randrange(3) for _ in range(rng.randint(0, 6))]
        n = rng.choice([1, 1, 1, 1, 2, 3])
        longest = max(1, room - len(prompt) + 1)
        params = SamplingParams(
            max_tokens=rng.randint(1, min(longest, 30)),
            temperature=rng.choice([0.0, 1.0]),
            seed=rng.choice([None, 5]),
            n=n,
            ignore_eos=rng.random() < 0.3,
        )
        if seed % 4 == 2:  # the others stay what they were when some of them found bugs
            params = with_ends(params, random.Random(f"{seed} {number}"))
        # Late arrivals are more urgent, so that priorities overturn what has been decided.
        step, priority = rng.randint(1, 12), rng.randint(0, 9 - number)
        label = more.choice(["", "ada", "bo"])
        arrivals.append(Arrival(step, prompt[:room], params, priority, label))
        if may_be_begun and n == 1 and begun.random() < 0.15 and seed not in ONCE_FAILED:
            arrivals[-1].begun = begun.random()
    aborts = [(rng.randint(1, 25), rng.randrange(9)) for _ in range(rng.choice([0, 0, 1, 3]))]
    failures = {rng.randint(1, 20)} if rng.random() < 0.1 else set()
    draft_length = rng.choice([0, 0, 0, 2, 4])
    apart_too = random.Random(f"{seed}: asynchronous").random()
    if may_be_async and apart_too < 0.3 and seed not in ONCE_FAILED:
        config, draft_length = msgspec.structs.replace(config, async_scheduling=True), 0
    many = apart.choice([0, 0, 1, 4])
    holds = [(apart.randint(2, 25), apart.randrange(9)) for _ in range(many)]
    releases = [(apart.randint(3, 30), apart.randrange(9)) for _ in range(many // 2)]
    stops = random.Random(f"{seed}: pauses")
    pauses = [(begin := stops.randint(1, 20), begin + stops.randint(1, 5))] * (stops.random() < 0.3)
    coming = random.Random(f"{seed}: moves")
    moves = [
        (coming.randint(1, 20), coming.randrange(9), coming.choice([0, 0, 0, 1, 2]))
        for _ in range(coming.choice([0, 0, 1, 3]))
    ]
    draft_model = random.Random(f"{seed}: draft model").random() < 0.5
    draft_failures = set[int]()
    if draft_length and draft_model and (draw := random.Random(f"{seed}: fails")).random() < 0.3:
        first = draw.randint(1, 25)
        draft_failures = draw.choice([{first}, {first, first + 3}, set(range(first, first + 5))])
        moves = []  # a page that such a model exports may lack its KV
    return Workload(
        config,
        arrivals,
        aborts,
        failures,
        draft_length,
        draft_model and seed not in ONCE_FAILED,
        draft_failures,
        holds,
        releases,
        pauses,
        moves,
    )
