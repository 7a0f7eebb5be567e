"""`--scenario table`: each row of `server.gateway.failures.FAILURES`, as measured.

The very fault of a row strikes real servers behind a real gateway, while requests arrive at random
times. The rows come from FAILURES, so a new row without a fault here is an error. For each row, the
report says which requests it met (those with its `hop_failed` in the cluster log), what their clients
saw, how long after the fault the gateway noticed it, and the longest silence of a stream.

A scene is a gateway, one fault, and the rows that the fault leads to. Deadlines of minutes are set
shorter, with the same `--deadline` that users have; the report has both values.
"""

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.checks import check_answers, check_kv, check_log
from benchmarks.chaos.cluster import KEY, REPLICAS, ROLES, Cluster, Replica
from benchmarks.chaos.rounding import ROUNDING
from benchmarks.chaos.runs import Wanted, story
from benchmarks.chaos.traffic import Outcome, Question, send
from engine.cluster import events as c
from engine.cluster.cluster_log import ClusterLog
from server.gateway.failures import FAILURES, Deadlines, Failure

_STRIKE = 3.0  # seconds after the first request
_PER_SECOND, _SECONDS = 1.0, 7.0  # requests for each replica, which arrive evenly
_BURST, _BURST_SECONDS = 4, 0.25  # more for each replica, just before the fault
# The gateway looks at its deadlines when it has a turn, and a beat is the grain of its silence.
_LATENESS = 1.0
# Seconds in which a well replica computes prompt and tokens so far beside all other requests.
_COMPUTED = 5.0
_DEADLINE = re.compile(r"no answer within ([\d.]+) s")
_CODE = re.compile(r"`([a-z]+_[a-z_]+)`")


class Few(Cluster):
    """Three servers that can be poisoned. A gateway knows the first `count` of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.poison = [directory / f"poison-{number}" for number in range(REPLICAS)]
        self.replicas = [
            Replica(str(number), directory, "benchmarks.chaos.poison", str(file))
            for number, file in enumerate(self.poison)
        ]
        self.count, self.has_key = REPLICAS, True

    def gateway_options(self) -> list[str]:
        """See `Cluster`."""
        key = ["--cluster-key", KEY] if self.has_key else []
        return key + [
            part for one in self.replicas[: self.count] for part in ("--replica", one.link.url)
        ]


Act = Callable[[Few], Awaitable[None]]


@dataclass(frozen=True)
class Scene:
    """A gateway over `replicas` replicas, and a fault that strikes it and heals after `lasts` seconds.

    asks       which questions arrive
    rows       (hop, what) of the rows of FAILURES that the fault leads to
    fault      in words
    burst      when most requests arrive, in seconds after the fault
    deadlines  those that are shorter than usual, or longer so that another row's does not pass first
    """

    rows: tuple[tuple[str, str], ...]
    fault: str
    strike: Act
    heal: Act
    lasts: float = 3.0
    replicas: int = REPLICAS
    roles: bool = False
    has_key: bool = True
    burst: float = -_BURST_SECONDS
    asks: Callable[[Question], bool] = lambda _question: True
    deadlines: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """A row of the report. Times are in seconds.

    noticed  the longest time from the fault, or from the start of what it delayed, to `hop_failed`
    silence  the longest one of a client's stream, and `allowed`, which includes the time to compute
    clients  what they saw, with the number of requests
    """

    hop: str
    what: str
    fault: str
    requests: int
    clients: dict[str, int]
    noticed: float
    within: str
    silence: float
    allowed: float
    violations: list[str]


# The faults


def _process(name: str, number: signal.Signals, replica: int = 0) -> Act:
    async def strike(cluster: Few) -> None:
        cluster.processes(str(replica))[name].send_signal(number)

    return strike


def _hold(path: str, *replicas: int) -> Act:
    async def strike(cluster: Few) -> None:
        for number in replicas or (0,):
            cluster.replicas[number].link.hold_path(path)

    return strike


async def _heal_links(cluster: Few) -> None:
    for replica in cluster.replicas:
        replica.link.heal()


async def _start_again(cluster: Few) -> None:
    cluster.replicas[0].link.heal()
    await cluster.start_again("0")


async def _nothing(_cluster: Few) -> None:
    """The server starts its engine again itself."""


async def _drain_unseen(cluster: Few) -> None:
    """The gateway learns of the drain from the replica's answers alone."""
    cluster.replicas[0].link.hold_path("/events")
    await _process("server", signal.SIGTERM)(cluster)


async def _after_drain(cluster: Few) -> None:
    cluster.replicas[0].link.heal()
    server = cluster.replicas[0].server
    assert server is not None
    await asyncio.to_thread(server.process.wait, 60)
    await cluster.start_again("0")


async def _fill(cluster: Few) -> None:
    cluster.replicas[0].link.fill()


async def _open(cluster: Few) -> None:
    await cluster.replicas[0].link.open()


async def _kill_while_it_computes(cluster: Few) -> None:
    """Let prompts pile up before the replica dies, so that it has some."""
    link = cluster.replicas[0].link
    link.hold_path("/v1/completions")
    await asyncio.sleep(1.0)
    await _process("server", signal.SIGKILL)(cluster)
    link.heal()


def _poison(*replicas: int) -> Act:
    async def strike(cluster: Few) -> None:
        for number in replicas:
            cluster.poison[number].touch()

    return strike


async def _antidote(cluster: Few) -> None:
    for file in cluster.poison:
        file.unlink(missing_ok=True)


_KILL, _STOP, _CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
_RENDER = (
    ("render", "a replica does not answer or refuses"),
    ("render", "the only replica does not answer"),
)
SCENES = (
    Scene(_RENDER[:1], "`/render` is held", _hold("/render"), _heal_links, 6.0, burst=0.1),
    Scene(
        _RENDER[1:], "`/render` is held", _hold("/render"), _heal_links, 6.0, replicas=1, burst=0.1
    ),
    Scene(
        (("queue", "a replica is stuck, or shuts down"),),
        "SIGTERM, its feed is held",
        _drain_unseen,
        _after_drain,
        burst=0.1,
        deadlines={"silent": 9.0},
    ),
    Scene(
        (("queue", "the only replica shuts down"),),
        "SIGTERM, its feed is held",
        _drain_unseen,
        _after_drain,
        replicas=1,
        burst=0.2,
    ),
    Scene(
        (("queue", "a replica cannot be reached"),),
        "its port accepts no connection",
        _fill,
        _open,
        6.0,
        burst=0.1,
    ),
    Scene(
        (("queue", "no replica has come back"),),
        "the server is killed and stays away",
        _process("server", _KILL),
        _start_again,
        8.0,
        replicas=1,
        deadlines={"queue": 4.0},
    ),
    Scene(
        (("prefill", "the prefill replica fails or refuses"),),
        "the server is killed",
        _kill_while_it_computes,
        _start_again,
        roles=True,
        burst=0.1,
    ),
    Scene(
        (("prefill", "it does not answer"),),
        "its answers are held",
        _hold("/v1/completions"),
        _heal_links,
        7.0,
        roles=True,
        burst=0.1,
    ),
    Scene(
        (("export", "it does not send the prompt's KV"),),
        "`/kv/export` is held",
        _hold("/kv/export"),
        _heal_links,
        7.0,
        roles=True,
        burst=0.1,
    ),
    Scene(
        (("adopt", "the decode replica does not take it"),),
        "`/kv/adopt` is held",
        _hold("/kv/adopt", 1, 2),
        _heal_links,
        7.0,
        roles=True,
        burst=0.1,
    ),
    Scene(
        (
            ("first_token", "a replica dies"),
            ("stream", "a replica dies"),
        ),
        "the server is killed",
        _process("server", _KILL),
        _start_again,
    ),
    Scene(
        (("stream", "one that holds LMTP buffers dies"),),
        "the server is killed",
        _process("server", _KILL),
        _start_again,
        asks=lambda question: "keep" in question.body,
    ),
    Scene(
        (("first_token", "a replica falls silent"), ("stream", "a replica falls silent")),
        "the server is stopped",
        _process("server", _STOP),
        _process("server", _CONT),
        6.0,
    ),
    Scene(
        (("first_token", "an engine's process dies"), ("stream", "an engine's process dies")),
        "the engine is killed",
        _process("engine", _KILL),
        _nothing,
    ),
    Scene(
        (("first_token", "a step fails"), ("stream", "a step fails")),
        "its forward passes raise",
        _poison(0),
        _antidote,
    ),
    Scene(
        (("first_token", "the only replica dies"), ("stream", "the only replica dies")),
        "the server is killed and started again",
        _process("server", _KILL),
        _start_again,
        replicas=1,
    ),
    Scene(
        (("first_token", "an engine does nothing"), ("stream", "an engine does nothing")),
        "the engine is stopped",
        _process("engine", _STOP),
        _process("engine", _CONT),
        6.0,
        deadlines={"first_token": 4.0, "stream": 4.0, "silent": 60.0},
    ),
    Scene(
        (
            ("first_token", "the only engine does nothing"),
            ("stream", "the only engine does nothing"),
        ),
        "the engine is stopped",
        _process("engine", _STOP),
        _process("engine", _CONT),
        6.0,
        replicas=1,
        deadlines={"first_token": 4.0, "stream": 4.0},
    ),
    Scene(
        (("first_token", "five engines fail in a row"),),
        "all forward passes raise",
        _poison(0, 1, 2),
        _antidote,
        6.0,
    ),
    Scene(
        (("stream", "the gateway has no cluster key"),),
        "the server is killed",
        _process("server", _KILL),
        _start_again,
        has_key=False,
    ),
)


def check_rows() -> None:
    """Raise LookupError if a row of FAILURES has no scene, or a scene has a row that is none."""
    known = [(row.hop, row.what) for row in FAILURES]
    injected = [row for scene in SCENES for row in scene.rows]
    if sorted(known) != sorted(injected):
        raise LookupError(f"a row and a fault without each other: {set(known) ^ set(injected)}")


async def play(
    cluster: Few, scene: Scene, pool: Sequence[Question], wanted: Wanted, seed: int
) -> tuple[list[Measured], list[str]]:
    """Play a scene; return its rows, and the failed hops that are none of them, in words."""
    dice = random.Random(seed)
    count, burst = round(scene.replicas * _PER_SECOND * _SECONDS), scene.replicas * _BURST
    times = [dice.uniform(0, _SECONDS) for _ in range(count)]
    times += [_STRIKE + scene.burst + dice.uniform(0, _BURST_SECONDS) for _ in range(burst)]
    asked = dice.choices([one for one in pool if scene.asks(one)], k=len(times))
    cluster.count, cluster.has_key = scene.replicas, scene.has_key
    options = list(ROLES) if scene.roles else []
    for name, seconds in scene.deadlines.items():
        options += ["--deadline", f"{name}={seconds:g}"]
    await cluster.start_gateway(*options)
    try:
        began = time.perf_counter()
        outcomes, (struck, works) = await asyncio.gather(
            send(cluster.url, sorted(times), asked, began), _inject(cluster, scene)
        )
        left = await cluster.until_freed()
        data = await cluster.trace()
    finally:
        await cluster.stop_gateway()
    return _rows(scene, data, outcomes, wanted, struck, works, left)


async def _inject(cluster: Few, scene: Scene) -> tuple[float, float]:
    """Let the fault strike and heal; return when, by the clock, it struck and all worked again."""
    await asyncio.sleep(_STRIKE)
    await scene.strike(cluster)
    struck = time.time()
    await asyncio.sleep(scene.lasts)
    await scene.heal(cluster)
    await cluster.until_works("0")
    await cluster.until_status("ok")
    return struck, time.time()


def _rows(  # noqa: PLR0917
    scene: Scene,
    data: bytes,
    outcomes: Sequence[Outcome],
    wanted: Wanted,
    struck: float,
    works: float,
    left: dict[str, Any],
) -> tuple[list[Measured], list[str]]:
    log, kinds = ClusterLog.from_bytes(data), set[tuple[str, str, str]]()
    labels = {one.request: one.label for one in log if isinstance(one, c.Routed)}
    by_label = {one.label: one for one in outcomes}
    failed: dict[tuple[str, str, str], list[tuple[c.HopFailed, Outcome]]] = {}
    for one in log:
        if isinstance(one, c.HopFailed) and labels.get(one.request) in by_label:
            how = one.hop, one.noticed, one.remedy
            failed.setdefault(how, []).append((one, by_label[labels[one.request]]))
    begun = next(one for one in log if isinstance(one, c.ClusterStarted)).t["unix_us"] / 1e6
    continued = {one.label for one in log if isinstance(one, c.Routed) if one.output}
    margins = wanted.margins(outcomes)
    rows = list[Measured]()
    for row in (one for one in FAILURES if (one.hop, one.what) in scene.rows):
        how = row.hop, row.noticed, row.remedy
        kinds.add(how)
        met = failed.get(how, [])
        usual = getattr(Deadlines(), row.within) if row.within else 0.0
        within = scene.deadlines.get(row.within, usual)
        noticed = max(
            (min(begun + one.t["at"] / 1e6 - struck, one.t["us"] / 1e6) for one, _ in met),
            default=0.0,
        )
        allowed = (works - struck if row.remedy == "waits" else _told(met, within)) + _COMPUTED
        silence = max((outcome.silence for _, outcome in met), default=0.0)
        problems = [] if met else ["no request was met"]
        if noticed > _told(met, within) + _LATENESS:
            problems.append(f"noticed after {noticed:.1f} s")
        if silence > allowed:
            problems.append(f"a silence of {silence:.1f} s")
        problems += [
            f"{outcome.label}: {outcome.kind} {outcome.error}"
            for _, outcome in met
            if not _is_as_said(row, outcome, wanted, margins)
        ]
        seen = Counter(_seen(outcome, continued) for _, outcome in met)
        told = "at once"
        if row.within:
            told = f"{within:g} s" if within == usual else f"{within:g} s instead of {usual:g}"
        rows.append(
            Measured(
                row.hop,
                row.what,
                scene.fault,
                len(met),
                dict(seen),
                round(noticed, 2),
                told,
                round(silence, 2),
                round(allowed, 1),
                problems,
            )
        )
    ended = {
        labels[one.request]
        for one in log
        if isinstance(one, c.HopFailed)
        if one.remedy == "ended" and one.request in labels
    }
    others = [one for one in outcomes if one.label not in ended]
    longest = max(one.allowed for one in rows)
    if scene.replicas == 1:  # while it is away, new requests get 503
        others = [one for one in others if one.kind != "refused"]
        longest = max(longest, works - struck + _COMPUTED)
    wrong = check_answers(others, wanted.answers, longest_silence=longest, margins=margins)
    wrong += [*check_log([data], outcomes)[1], *check_kv(left)]
    for violation in wrong:
        print(f"VIOLATION {violation}"[:1000], *story(log, violation.label), sep="\n    ")
        rows[0].violations.append(str(violation))
    beside = [
        f"{hop} {noticed} {remedy}: {dict(Counter(_seen(one, continued) for _, one in its))}"
        for (hop, noticed, remedy), its in failed.items()
        if (hop, noticed, remedy) not in kinds
    ]
    return rows, beside


def _told(met: Sequence[tuple[c.HopFailed, Outcome]], within: float) -> float:
    """Return the longest deadline that the gateway had: that of a prompt grows with its length."""
    found = [_DEADLINE.search(one.why) for one, _ in met]
    return max([within, *(float(match[1]) for match in found if match)])


def _is_as_said(
    row: Failure, outcome: Outcome, wanted: Wanted, margins: Mapping[str, float]
) -> bool:
    """Whether a client saw what the row says."""
    if row.remedy != "ended":
        right = outcome.answer == wanted.answers[outcome.question]
        return outcome.kind == "complete" and (right or margins[outcome.label] <= ROUNDING)
    if code := _CODE.search(row.client):
        return outcome.error == code[1]
    return outcome.kind in ("refused", "error")


def _seen(outcome: Outcome, continued: Collection[str]) -> str:
    if outcome.kind != "complete":
        return outcome.error or outcome.kind
    return "continued" if outcome.label in continued else "answered"


def as_markdown(rows: Sequence[Measured]) -> list[str]:
    """Return the table for `docs/cluster.md`."""
    lines = [
        "| step | what fails | the fault | the clients saw | noticed after | longest silence |",
        "|---|---|---|---|---|---|",
    ]
    order: list[tuple[str, str]] = [(row.hop, row.what) for row in FAILURES]
    for one in sorted(rows, key=lambda row: order.index((row.hop, row.what))):
        seen = [f"{count} {_as_code(what)}" for what, count in sorted(one.clients.items())]
        cells = one.hop.replace("_", " "), one.what, one.fault, ", ".join(seen)
        noticed = f"{one.noticed:.1f} s" + (f" ({one.within})" if one.within != "at once" else "")
        lines.append(f"| {' | '.join([*cells, noticed, f'{one.silence:.1f} s'])} |")
    return lines


def _as_code(what: str) -> str:
    return what if what in ("answered", "continued") else f"`{what}`"
