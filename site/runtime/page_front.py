"""The front page's run: the visitor's request joins three others on the bundled model.

    Ada and Bo write -> Cleo asks a long question -> the visitor asks -> memory is full

All prompts begin alike. Memory has the blocks that the four need when the visitor has `TOKENS` tokens,
so that it is full soon afterwards, whatever the visitor has typed. What happens then is the
scheduler's decision.

The module does not import anything from Pyodide. The site's build records Ada and Bo with it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from engine import Engine, EngineConfig, SamplingParams
from engine.core.config import ConfigError
from engine.core.log import EventLog
from engine.core.tokenizer import Tokenizer
from engine.simulation.choice import ChoiceError, Victim
from engine.simulation.rerun import Rerun
from engine.simulation.what_if import what_if

BUDGET, SEATS, BLOCK = 32, 4, 8
FIRST = 6  # steps that Ada and Bo have alone, at least
TOKENS = 5  # of the visitor's answer, before memory may be full
MOST = 85  # tokens of the visitor's prompt that are read
_BEGIN = "<|user_start|>You are a kind storyteller for children.\n\n"
_END = "<|user_end|><|assistant_start|>"


@dataclass(frozen=True)
class Person:
    """A person who asks: a name, a question, the length of the answer, and how its tokens are drawn."""

    name: str
    question: str
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None


ADA = Person("Ada", "Tell me a story about a fox and a river.", 72, 0.8, 3)
BO = Person("Bo", "Tell me a story about a boat.", 68, 0.8, 8)
CLEO = Person(
    "Cleo",
    "Here is a letter from my grandmother. Dear Cleo, the river is so high that the bridge is closed. "
    "The cat sleeps near the fire. I have made bread. Come and see me soon. Now tell me a story about "
    "her cat.",
    10,
    0.8,
    5,
)
VISITOR = "You"

Send = Callable[[bytes], object]


def config(num_blocks: int) -> EngineConfig:
    """Return the settings of the page's engine."""
    return EngineConfig(
        token_budget=BUDGET,
        max_batch_size=SEATS,
        max_kv_tokens=num_blocks * BLOCK,
        block_size=BLOCK,
    )


def load() -> None:
    """Load the model."""
    Engine.load("bundled", config(1))


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of the bundled model."""
    return Engine.load("bundled", config(1)).tokenizer


def prompt(question: str) -> list[int]:
    """Return a question's tokens, cut to `MOST`. Special tokens that its text names are left out."""
    encode = tokenizer().encode
    begin, end = encode(_BEGIN), encode(_END)[1:]
    asked = re.sub(r"<\|[^|]*\|>", " ", question).strip()
    ids = encode(_BEGIN + asked)
    if ids[: len(begin)] != begin:  # the question changes how the beginning is split
        ids = begin + encode(asked)[1:]
    return ids[: MOST - len(end)] + end


def blocks_needed(prompts: list[list[int]], after: int) -> int:
    """Return the blocks in use when another's request needs one more.

    That is in the first such step in which the visitor has `TOKENS` tokens.

    prompts  the tokens of Ada's, Bo's, Cleo's and the visitor's prompts
    after    the steps that Ada and Bo have alone
    """
    ada, bo = map(len, prompts[:2])
    computed = [ada + after - 1, bo + after - 2, _hit(prompts[:3]), _hit(prompts)]
    written = 0
    while True:
        before = computed.copy()
        left = BUDGET
        for one, ids in enumerate(prompts):
            count = min(left, max(1, len(ids) - computed[one]))
            left -= count
            computed[one] += count
        others = zip(before[:-1], computed, strict=False)
        if written >= TOKENS and any(-(-had // BLOCK) < -(-has // BLOCK) for had, has in others):
            return len(set(_blocks(prompts, before)))
        written += computed[-1] >= len(prompts[-1])


def _hit(prompts: list[list[int]]) -> int:
    """Return how many tokens of the last prompt Ada's or Bo's blocks have; one is always computed."""
    *_, ids = prompts
    ends = range((len(ids) - 1) // BLOCK * BLOCK, 0, -BLOCK)
    return next((end for end in ends if any(one[:end] == ids[:end] for one in prompts[:2])), 0)


def _blocks(prompts: list[list[int]], computed: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield a key for each request's blocks; equal beginnings have equal keys, answers never."""
    for one, (ids, tokens) in enumerate(zip(prompts, computed, strict=True)):
        for end in range(BLOCK, tokens + BLOCK, BLOCK):
            yield tuple(ids[:end]) if end <= len(ids) else (-1 - one, end)


def steps(engine: Engine, asked: list[tuple[int, Person, list[int]]]) -> Iterator[int]:
    """Run the requests, each of which arrives before its step; yield after every step."""
    waiting = list(asked)
    while waiting or engine.has_work():
        while waiting and waiting[0][0] <= engine.step_count + 1:
            _, person, ids = waiting.pop(0)
            params = SamplingParams(
                max_tokens=person.max_tokens, temperature=person.temperature, seed=person.seed
            )
            engine.submit(ids, params, label=person.name)
        engine.step()
        yield engine.step_count


class Front:
    """The last run, for the choices that follow it."""

    def __init__(self) -> None:
        self.log = EventLog()

    def ask(self, question: str, after: int, send: Send) -> None:
        """Serve the four, and send each step's lines of the log.

        after  the steps after which Cleo and the visitor ask
        """
        after = max(FIRST, after)
        people = [ADA, BO, CLEO, Person(VISITOR, question, 32)]
        prompts = [prompt(one.question) for one in people]
        arrivals = [1, 2, after + 1, after + 1]
        size = blocks_needed(prompts, after)
        engine = Engine.load("bundled", config(size))
        self.log = engine.log
        _send_all(engine, list(zip(arrivals, people, prompts, strict=True)), send)

    def change(self, settings: dict[str, Any], send: Send) -> str:
        """Run the last run again with other settings, or another victim; return what forbids it, or "".

        Sends the same run and the changed one, both with predicted times.
        """
        rerun = Rerun(self.log)
        try:
            if "victim" in settings:
                changed = rerun.take(settings["step"], Victim(settings["victim"]))
            else:
                changed = what_if(self.log, cost=rerun.cost, **settings)
        except (ChoiceError, ConfigError) as error:
            return str(error)
        send(what_if(self.log, cost=rerun.cost).to_bytes())
        send(changed.to_bytes())
        return ""


def _send_all(engine: Engine, asked: list[tuple[int, Person, list[int]]], send: Send) -> None:
    sent = 0
    for _ in steps(engine, asked):
        lines = EventLog()
        for event in engine.log.since(sent):
            lines.append(event)
        sent = engine.log.next_seq
        send(lines.to_bytes())


front = Front()


def recorded() -> EventLog:
    """Return the log of Ada and Bo alone: shown until the page's engine has started.

    It has no times and no facts about the model, which name the kernels that this machine has measured,
    so that two builds of the site are equal.
    """
    engine = Engine.load("bundled", config(24))
    _send_all(
        engine,
        [(1, ADA, prompt(ADA.question)), (2, BO, prompt(BO.question))],
        lambda _: None,
    )
    first, *lines = engine.log.deterministic()
    first = msgspec.json.encode(msgspec.json.decode(first) | {"model": {}})
    return EventLog.from_bytes(b"".join(line + b"\n" for line in (first, *lines)))
