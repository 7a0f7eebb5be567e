"""People who send readable prompts of exact lengths: the workloads of scenarios and of the playground.

A lesson needs "a 30-token prompt with 16 common tokens", and a picture needs readable words. So a token
here is a word or a punctuation mark: "the moon is a lamp." has six tokens. Two prompts share exactly
the tokens that they should share, because each person's own part begins with their name.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from engine.core.sampling_params import SamplingParams
from engine.extensions.prefix_keys import salt_digest
from engine.simulation.workload import Answer, Arrival, Workload

NAMES = (
    "Ada Bo Cleo Dev Eva Finn Gus Hana Ivo Jun Kim Lea Max Noa Oto Pia Quin Rosa Sol Tao Uma Vera Wim "
    "Xena Yan Zoe Amir Bea Cem Dora"
).split()

# Common prefixes of prompts, by name.
COMMON = {
    "storyteller": "You are a kind storyteller. Use short words and short sentences. Keep it "
    "under ten lines, and end on a happy note. Never frighten a small child. If somebody asks for "
    "a song, write a song. Here is the question:",
    "letter": "Dear grandmother, today we took the boat to the island. The sea was flat and "
    "green, the gulls followed us all the way, and Tom lost his hat.",
    "clock": "The town clock stopped on the night of the great snow. The baker kept the key, "
    "lent it to the smith, and the smith dropped it into the river.",
    "garden": "In the old garden there are nine apple trees, a well and a wall. Behind the wall "
    "lives a fox who counts the stars and never gets beyond a hundred.",
    "winter": "That winter the lake froze so hard that the postman skated from house to house. "
    "Letters came before breakfast, and everybody wrote more of them than ever before or since.",
}

_TALK = [
    "the moon is a lamp that nobody has to light.",
    "a small boat wanted to fly, so it asked the gulls.",
    "one star was missing, and the fox packed his bag.",
    "the key lay in the river under the mill.",
    "rain on the roof, rain on the hill, rain in the cup.",
    "the owl said nothing and looked at the snow.",
    "a cat learned to read the word fish on a tin.",
    "every morning the baker sang to the bread.",
    "the dragon lost her fire and looked for it all winter.",
    "somebody had painted the door of the lighthouse blue.",
    "good night, little bear, the river sings for you.",
    "they walked to the edge of the map and turned the page.",
    "the last train brought a letter without a name.",
]
_WORD = re.compile(r" ?\w+|[^\w\s]")
_END = 0  # the token that ends an answer; its text is empty


@dataclass(frozen=True, slots=True)
class Speaker:
    """One request: a prompt of `shared` common and `own` other tokens, and answers of `output` tokens.

    common      a key of COMMON
    step        the request arrives before this step, or at `at_ms` if that is given
    n           number of samples, each with its own answer
    max_tokens  None: exactly the length of the answer
    adapter, salt    of the request; see `engine/extensions/prefix_keys.py`
    prompt, answer   texts to use instead of generated ones; `output` still limits the answer
    """

    name: str
    step: int = 1
    own: int = 0
    output: int = 1
    common: str = "storyteller"
    shared: int = 0
    at_ms: float | None = None
    n: int = 1
    priority: int = 0
    max_tokens: int | None = None
    adapter: str = ""
    salt: str = ""
    prompt: str = ""
    answer: str = ""


def workload_of(speakers: Iterable[Speaker]) -> Workload:
    """Return the speakers' requests. Speakers must be in order of arrival.

    Request ids count from 1, one for each sample. Raises ValueError for an unknown common text.
    """
    words = {"": _END}
    inputs = [_arrival(number, speaker, words) for number, speaker in enumerate(speakers)]
    described = {"name": "words", "vocab_size": len(words), "bos_id": None, "eos_ids": [_END]}
    return Workload(list(inputs), described)


def talk(start: int, tokens: int) -> list[str]:
    """Return `tokens` tokens of text, starting with sentence `start`."""
    sentences = _TALK[start % len(_TALK) :] + _TALK[: start % len(_TALK)]
    return list(islice(cycle(_split(" " + " ".join(sentences))), tokens))


def prompt_words(speaker: Speaker, number: int) -> list[str]:
    """Return a prompt as tokens. `number` is the speaker's index."""
    if speaker.prompt:
        return _split(speaker.prompt)
    own = [*_split(f" {speaker.name}:"), *talk(number, speaker.own)][: speaker.own]
    if speaker.common not in COMMON:
        raise ValueError(f"common must be one of {', '.join(COMMON)}, got {speaker.common!r}")
    return [*islice(cycle(_split(COMMON[speaker.common])), speaker.shared), *own]


def _arrival(number: int, speaker: Speaker, words: dict[str, int]) -> Arrival:
    texts = prompt_words(speaker, number)
    asked = speaker.output if speaker.max_tokens is None else speaker.max_tokens
    return Arrival(
        step=speaker.step if speaker.at_ms is None else None,
        at_ms=speaker.at_ms or 0.0,
        prompt=_ids(texts, words),
        params=SamplingParams(max_tokens=asked, n=speaker.n),
        label=speaker.name,
        priority=speaker.priority,
        texts=texts,
        answers={
            sample: _answer(speaker, number, sample, asked, words) for sample in range(speaker.n)
        },
        extra_key=(speaker.adapter, salt_digest(speaker.salt))
        if speaker.adapter or speaker.salt
        else (),
    )


def _answer(
    speaker: Speaker, number: int, sample: int, asked: int, words: dict[str, int]
) -> Answer:
    texts = _split(speaker.answer) or talk(5 * number + 3 * sample + 1, speaker.output)
    texts = texts[: speaker.output]
    if len(texts) < asked:
        texts[-1] = ""  # the end token
    return Answer(len(texts), _ids(texts, words), texts)


def _ids(texts: Sequence[str], vocabulary: dict[str, int]) -> list[int]:
    """Return the token ids, and add new words to the vocabulary."""
    return [vocabulary.setdefault(text, len(vocabulary)) for text in texts]


def _split(text: str) -> list[str]:
    return _WORD.findall(text)
