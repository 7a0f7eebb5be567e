"""A scripted class of twelve requests on forty blocks, with every situation that pictures show.

Shared prefixes, a fork, a prompt in two chunks, a queue that grows, a preemption with its resume, an
eviction. The engine is the real one; only the model is replaced by a script and the clock pretends.
"""

import math
import random
import re
from collections.abc import Sequence
from typing import Any

from engine import Engine, EngineConfig, EventLog, SamplingParams
from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.runner import Row, Sampled
from engine.simulation.cost_runner import CostRunner

_KIND = "You are a kind storyteller. Use short words. Keep it under ten lines.\n"
_DRAGON = _KIND + "Tell me a story about a small dragon who lost her fire.\n"
_BOAT = _KIND + "Tell me a story about a small boat that wanted to fly.\n"
_FOX = "Once upon a time there was a fox who lived under a hill and counted the stars "

# Step before which it arrives, prompt, and the output of each sample; "." at the end: it stops.
STORIES: list[tuple[int, str, list[str]]] = [
    (1, _DRAGON, [
        "Ember was a small red dragon. One cold morning she woke and her fire was gone. "
        "She asked the owl, the frog and the wind. The wind said: look",
    ]),
    (1, _BOAT, [
        "Pip the boat looked up at the gulls all day. One night a storm came, and lifted him over "
        "the pier. He flew",
    ]),
    (2, _KIND + "Say this in French, please: the moon is a lamp.\n", ["La lune est une lampe."]),
    (4, _FOX + "every night, and one night a star was gone, so he packed his bag", [
        " and walked to the edge of the world, where the sea falls up into the sky and the lost "
        "stars wash ashore like shells. He put one in his",
    ]),
    (6, _KIND + "Write a poem about the rain.\n", [
        "Rain on the roof, rain on the hill, rain in the cup on the window sill. Rain on the road "
        "and rain on the sea, and",
        "Soft grey drum on a slate grey day, you wash the chalk of the sun away. You tap on the "
        "glass and you ask to come in, and the",
    ]),
    (9, _KIND + "Make this short: the old clock in the town hall had stopped on the night of the "
        "great snow, and nobody could say why, for the key was kept by the baker, who had lent it "
        "to the smith, who had lost it in the river under the mill, where a pike had taken it for "
        "a fish and kept it as her own.\n", [
        "The town clock stopped because a pike ate the key. It had gone from baker to smith to "
        "river, and no one dared to ask her for it. So the town keeps time by bread",
    ]),
    (14, _DRAGON + "Make it sad.\n", [
        "Ember lost her fire in the first snow. She looked for it all winter long, in the well and",
    ]),
    (17, _KIND + "Say this in French, please: good night, little bear, the owl is up, the moon is "
     "a lamp, the snow has put the hill to bed, and the river sings for you.\n",
     ["Bonne nuit, petit ours."]),
    (22, _KIND + "Tell me a story about a small cat who learned to read.\n",
     ["Tom the cat read the word fish on a tin. Then he read it again"]),
    (29, _BOAT + "Pip the boat looked up at the gulls all day.\nGo on.\n",
     ["He asked them for a feather. They gave him three"]),
    (45, _FOX + "that no one else could see.\n", ["He gave each one a name, and he"]),
]  # fmt: skip

_PIECE = re.compile(r" ?\w+|\n|[^\w\s]| ")


class WordTokenizer(ByteTokenizer):
    """One token a word, so that a block reads as a phrase. Id 0 ends an output."""

    def __init__(self) -> None:
        super().__init__()
        self._words = [""]
        self._ids: dict[str, int] = {}
        self.eos_ids = frozenset({0})
        self.vocab_size = 4096

    def encode(self, text: str) -> list[int]:
        """Return the ids of the words, new ones for new words."""
        pieces = _PIECE.findall(text)
        for piece in pieces:
            if piece not in self._ids:
                self._ids[piece] = len(self._words)
                self._words.append(piece)
        return [self._ids[piece] for piece in pieces]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._words[id_] for id_ in ids]

    def token_id(self, text: str) -> int | None:
        return None

    def detokenizer(self, prompt_ids: Sequence[int]) -> "_Words":
        return _Words(self)


class _Words:
    def __init__(self, tokenizer: WordTokenizer) -> None:
        self._tokenizer = tokenizer

    def push(self, token_id: int) -> str:
        return self._tokenizer.pieces([token_id])[0]

    def flush(self) -> str:
        return ""


class ScriptedRunner(CostRunner):
    """A runner with scripted outputs; a step takes 6 ms plus 0.25 ms per token."""

    def __init__(self) -> None:
        super().__init__(6, 0.25)
        self._chance = random.Random(7)

    def describe(self) -> dict[str, Any]:
        return {"name": "scripted", "parameters": 0}

    def _sample(self, row: Row, sample: int) -> Sampled:
        probability = 1 - 0.9 * self._chance.random() ** 2
        return Sampled(super()._sample(row, sample).ids, [math.log(probability)])


def storytellers(**settings: Any) -> EventLog:
    """The log of the class. `settings` change the EngineConfig."""
    defaults = dict(token_budget=64, max_batch_size=7, max_kv_tokens=320, block_size=8)
    config = EngineConfig(**(defaults | settings))
    return _play(config, [(step, "", prompt, outputs) for step, prompt, outputs in STORIES])


def crowd(
    requests: int = 2, labels: Sequence[str] = (), prompts: Sequence[str] = (), **settings: Any
) -> EventLog:
    """The log of many short requests one after another; labels and prompts may be given."""
    chance = random.Random(5)
    subjects = ("the fox", "a small boat", "the red dragon", "an old clock", "the moon")
    coming: list[tuple[int, str, str, list[str]]] = []
    for i in range(requests):
        prompt = prompts[i] if i < len(prompts) else ""
        prompt = prompt or _KIND + " and ".join(chance.choices(subjects, k=chance.randint(2, 20)))
        output = " then ".join(chance.choices(subjects, k=chance.randint(3, 15)))
        coming.append((1 + 4 * i, labels[i] if i < len(labels) else "", prompt, [output]))
    return _play(EngineConfig(**settings), coming)


def _play(config: EngineConfig, coming: list[tuple[int, str, str, list[str]]]) -> EventLog:
    """Step an engine until all requests (step of arrival, label, prompt, outputs) are finished."""
    runner, tokenizer = ScriptedRunner(), WordTokenizer()
    engine = Engine(runner, config, tokenizer=tokenizer, clock=runner.clock)
    while coming or engine.has_work():
        while coming and coming[0][0] <= engine.step_count + 1:
            (_, label, prompt, outputs), *coming = coming
            words = [[*tokenizer.encode(output), 0] for output in outputs]
            longest = max(map(len, words)) - (not outputs[0].endswith("."))
            params = SamplingParams(max_tokens=longest, n=len(outputs))
            request = engine.submit(prompt, params, label=label)
            runner.outputs |= {request.id + sample: ids for sample, ids in enumerate(words)}
        engine.step()
    return engine.log
