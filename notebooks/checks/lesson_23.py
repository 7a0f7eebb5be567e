"""Lesson 23: the key of a cached block, for customers with adapters and salts."""

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from checks.answer import Answer
from checks.broken import Promises
from checks.guard import call, watched
from engine import Cost, Engine, EngineConfig, SamplingParams, simulate
from engine.core.cache.hash_cache import HashNode
from engine.core.log import EventLog
from engine.core.log.vocabulary import RequestFinished
from engine.simulation.checking_runner import CheckingRunner
from engine.simulation.cost_runner import CostRunner
from engine.simulation.simulate import ReplayEngine, play
from engine.simulation.workload import Workload

ANSWERS = {
    "step": Answer(
        "about 15 % longer",
        {
            "32 times as long": "That would be a model for each. Which weights do they share?",
            "twice as long": "Each adapter is read, too, but how many bytes are 32 of them?",
            "1 % longer": "One adapter is half a percent of the model, but here are 32 of them.",
        },
        fits=lambda ratio: 1.13 < ratio < 1.17,
    ),
    "prompt": Answer(
        "none of it",
        {
            "all of it": "The words are the same, but keys and values depend on the weights, too.",
            "the first block of it": "An adapter changes the keys of the first token, too.",
            "half of it": "That's if half of the layers had no adapter. One changed layer is enough.",
        },
        fits=lambda tokens: tokens == 0,
    ),
}
HINTS = (
    "A tuple of everything that the block's KV depends on is a key. Which of the four arguments may "
    "differ while the KV is the same?",
    "The tokens are a list, which no dict takes as a key; a tuple is taken. Text that is put together "
    "from parts forgets where one part ends: keep adapter and salt in places of their own.",
)
BlockKey = Callable[[Any, list[int], str | None, str | None], Any]
_Place = tuple[int, tuple[int, ...], tuple[str, ...]]


class Promise(Promises):
    """The promises that the check tests."""

    HASHABLE = "a key can be looked up in a dict"
    NOT_NONE = "a key is never None, which stands for the beginning of a prompt"
    SAME = "the same tokens, adapter and salt always have the same key"
    TOKENS = "a block with other tokens has another key"
    BEFORE = "a block behind other blocks has another key, however far back they differ"
    ADAPTER = "a block of another adapter has another key"
    SALT = "a block of a request with another salt has another key"
    TEXT = "names and salts are any text, and an adapter's name is not a salt"
    MANY = "of many blocks, no two share a key by chance"
    RUN = "in the engine, no request reads another one's KV"


@dataclass(frozen=True)
class Prompt:
    """The full blocks of a request, and what else its KV depends on."""

    blocks: tuple[tuple[int, ...], ...]
    adapter: str | None = None
    salt: str | None = None

    def __str__(self) -> str:
        blocks = " ".join(str(list(block)) for block in self.blocks[:4])
        more = " ..." if len(self.blocks) > 4 else ""
        return f"{blocks}{more}, adapter {self.adapter!r}, salt {self.salt!r}"


@dataclass(frozen=True)
class Case:
    """Prompts whose blocks may have equal keys only if they are equal in everything."""

    promise: Promise
    look: str
    prompts: tuple[Prompt, ...]
    runs: bool = False  # in the engine

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return sum(len(prompt.blocks) for prompt in self.prompts)

    def __str__(self) -> str:
        if len(self.prompts) > 3:
            where = "in the engine" if self.runs else "with a key for each"
            return f"{len(self.prompts)} requests with {self.blocks} blocks, {where}."
        return "; ".join(f"request {n}: {one}" for n, one in enumerate(self.prompts, 1)) + "."


def cases() -> list[Case]:
    """Return pairs of requests that differ in one respect, then many at once, then a run."""
    a, b, c, d = (1, 2), (3, 4), (5, 6), (7, 8)
    tokens = "Which other lists of tokens would your key take for these?"
    before = "What does the KV of a token depend on? It has read all tokens before it."
    adapter = "The adapter changes the weights that make keys and values, in every block."
    salt = "The salt tells whose KV this request may use. Is it in the key, whatever else is?"
    text = "Compare the two keys. Where does the adapter end, and where does the salt begin?"
    same = "What in your key is new in every call?"
    pairs: list[tuple[Promise, str, Prompt, Prompt]] = [
        (Promise.SAME, same, Prompt((a,)), Prompt((a,))),
        (Promise.SAME, same, Prompt((a,), "law"), Prompt((a,), "law")),
        (Promise.SAME, same, Prompt((a,), None, "k7"), Prompt((a,), None, "k7")),
        *(
            (Promise.TOKENS, tokens, Prompt((one,)), Prompt((other,)))
            for one, other in [(a, b), (a, (2, 1)), ((1, 4), (2, 3)), ((1, 23), (12, 3)), (a, (3, 2))]
        ),
        (Promise.TOKENS, tokens, Prompt(((1, 1, 2),)), Prompt(((1, 2, 2),))),
        (Promise.ADAPTER, adapter, Prompt((a,), "law"), Prompt((a,))),
        (Promise.ADAPTER, adapter, Prompt((a,), "law"), Prompt((a,), "toys")),
        (Promise.ADAPTER, adapter, Prompt((a,), "law", "k7"), Prompt((a,), "toys", "k7")),
        (Promise.SALT, salt, Prompt((a,), None, "k7"), Prompt((a,))),
        (Promise.SALT, salt, Prompt((a,), None, "k7"), Prompt((a,), None, "k8")),
        (Promise.SALT, salt, Prompt((a,), "law", "k7"), Prompt((a,), "law", "k8")),
        (Promise.TEXT, text, Prompt((a,), "law"), Prompt((a,), None, "law")),
        (Promise.BEFORE, before, Prompt((a, c)), Prompt((b, c))),
        (Promise.BEFORE, before, Prompt((a, b)), Prompt((b, a))),
        (Promise.SAME, same, Prompt((a, b), "law", "k7"), Prompt((a, b), "law", "k7")),
        (Promise.ADAPTER, adapter, Prompt((a, b), "law"), Prompt((a, b), "toys")),
        (Promise.SALT, salt, Prompt((a, b), "law", "k7"), Prompt((a, b), "law", "k8")),
        (Promise.BEFORE, before, Prompt((a, b, d)), Prompt((a, c, d))),
        (Promise.BEFORE, before, Prompt((a, b, c, d), "law"), Prompt((b, b, c, d), "law")),
        (Promise.BEFORE, before, Prompt((a, a, a, a)), Prompt((a, a, a, b))),
    ]  # fmt: skip
    made = [Case(promise, look, (one, other)) for promise, look, one, other in pairs]
    texts = [None, "None", "law", "Law", "law ", "k", "lawk", "law:", ":k", "k:", "law:k", "law|k"]
    texts += ["law, k", "law/k", "law\nk", "the same long beginning 1", "the same long beginning 2"]
    named = tuple(Prompt((a,), *pair) for pair in product(texts, texts))
    made.append(Case(Promise.TEXT, text, named))
    chance = "How many different values can your key have?"
    numbers = tuple(Prompt(((n, n + 1), (n, n + 1), (7, n))) for n in range(100, 190))
    made.append(Case(Promise.MANY, chance, numbers))
    prompt = tuple((n, n + 1) for n in range(5))
    run = tuple(
        Prompt((*prompt, (own, own)), *pair)
        for own, pair in enumerate([*product([None, "law", "toys"], [None, "k7", "law"])] * 10)
    )
    made.append(Case(Promise.RUN, "In which of the keys above are two customers alike?", run, True))
    return sorted(made, key=lambda case: (case.runs, case.blocks))


def attempt(block_key: BlockKey, case: Case) -> None:
    """Compare the keys of all blocks of a case, or let them find KV in the engine."""
    if case.runs:
        _run(block_key, case)
        return
    found: dict[Any, tuple[Any, str]] = {}  # by key: what the block's KV depends on, and its name
    keys: dict[Any, Any] = {}  # what the block's KV depends on -> its key
    for number, prompt in enumerate(case.prompts, 1):
        before = None
        for index, tokens in enumerate(prompt.blocks):
            own = prompt.blocks[: index + 1], prompt.adapter, prompt.salt
            name = f"block {index + 1} of request {number} ({prompt})"
            before = _key(block_key, before, tokens, prompt)
            if keys.setdefault(own, before) != before:
                raise Promise.SAME.broken(
                    f"Twice the same block had different keys: {_short(keys[own])} and "
                    f"{_short(before)}.",
                    case.look if case.promise is Promise.SAME else "What is new in every call?",
                )
            other, other_name = found.setdefault(before, (own, name))
            if other != own:
                raise case.promise.broken(
                    f"Two blocks have the same key, {_short(before)}: {other_name} and {name}.",
                    case.look,
                )


def _key(block_key: BlockKey, before: Any, tokens: tuple[int, ...], prompt: Prompt) -> Any:
    key = call(block_key, before, list(tokens), prompt.adapter, prompt.salt)
    if key is None:
        raise Promise.NOT_NONE.broken("You returned None.", "What does block_key() return?")
    try:
        hash(key)
    except TypeError as error:
        raise Promise.HASHABLE.broken(
            f"You returned {_short(key)}, and a dict says: {error}.",
            "Which of the values in your key can change?",
        ) from None
    return key


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _run(block_key: BlockKey, case: Case) -> None:
    """Serve the prompts with a runner that checks every read of KV."""
    config = EngineConfig(
        prefix_cache="hash", block_size=2, max_kv_tokens=64, max_loras=2, token_budget=32
    )
    runner = CheckingRunner(lambda tokens, _: (3 * tokens[-1] + len(tokens)) % 200)
    engine = Engine(runner, config)
    engine.cache._by_key = KeyTable(block_key)  # type: ignore[attr-defined]
    for name in {one.adapter for one in case.prompts} - {None}:
        engine.adapters.add(name, name)
    with watched(block_key):
        for prompt in case.prompts:
            engine.submit(
                [token for block in prompt.blocks for token in block],
                SamplingParams(max_tokens=4, ignore_eos=True),
                adapter=prompt.adapter or "",
                cache_salt=prompt.salt or "",
            )
        while engine.has_work():
            engine.step()
    for event in engine.log:  # an engine survives a failed step, whose requests end with its error
        if isinstance(event, RequestFinished) and event.reason == "error":
            raise case.promise.broken(f"A step failed: {event.message}.", case.look)


class KeyTable(MutableMapping[_Place, HashNode]):
    """The hash cache's table, with the learner's keys.

    The cache asks with the node of the block before, the block's tokens and, for a first block, the
    request's adapter and salt.
    """

    def __init__(self, block_key: BlockKey) -> None:
        self._block_key = block_key
        self._nodes: dict[Any, HashNode] = {}
        # By node: its key, and what goes into the keys below it.
        self._below: dict[int, tuple[Any, str | None, str | None]] = {}

    def _key(self, place: _Place) -> tuple[Any, ...]:
        parent, tokens, extra_key = place
        adapter, salt = extra_key or ("", "")
        before, *own = self._below.get(parent, (None, adapter or None, salt or None))
        return self._block_key(before, list(tokens), *own), *own

    def __getitem__(self, place: _Place) -> HashNode:
        return self._nodes[self._key(place)[0]]

    def __setitem__(self, place: _Place, node: HashNode) -> None:
        key, adapter, salt = self._key(place)
        self._nodes[key] = node
        self._below[node.id] = key, adapter, salt

    def __delitem__(self, place: _Place) -> None:
        node = self._nodes.pop(self._key(place)[0])
        del self._below[node.id]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def adapt(part: BlockKey | None) -> Callable[..., EventLog]:
    """Return `simulate`, or one whose hash cache has the learner's keys."""
    if part is None:
        return simulate

    def serve(workload: Workload, config: EngineConfig, *, cost: Cost) -> EventLog:
        runner = CostRunner(**asdict(cost))
        engine = ReplayEngine(runner, config, workload)
        engine.cache._by_key = KeyTable(part)  # type: ignore[attr-defined]
        play(workload.inputs, engine, engine.apply, runner.clock.skip_to)
        return engine.log

    return serve
