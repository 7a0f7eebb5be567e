"""The corpus: an endless stream of documents from one seed.

Nothing is downloaded or stored. The same seed gives the same documents in the same order on every
machine, so a training run can be repeated exactly, and resumed after an interruption.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from engine.training import numbers, recall, records, serving, stories, talk, tools
from engine.training.documents import SPECIAL_TOKENS, Document, Tools, Turn, chat, plain, raw

# Frequencies of the kinds of documents, in percent. Stories and tools are long, so each of them makes
# up about a quarter of all tokens.
PLAIN: dict[str, tuple[float, Callable[[Random], str]]] = {
    "story": (6, stories.plain_story),
    "prose": (1.5, serving.prose),
}
CHAT: dict[str, tuple[float, Callable[[Random], list[Turn]]]] = {
    "sum": (13, numbers.sum_turns),
    "letters": (7.5, numbers.letter_turns),
    "concept": (12, serving.concept_turns),
    "comparison": (3, serving.comparison_turns),
    "story chat": (6, stories.turns),
    "talk": (4, talk.talk_turns),
    "decline": (4, talk.decline_turns),
    "name": (2.5, talk.name_turns),
    "echo": (4, talk.echo_turns),
    "recall": (4, recall.turns),
    "json": (12, records.turns),
}
# Kinds that make documents of their own.
TOOLS, RAW = "tools", "raw"
_OTHER = {TOOLS: 20, RAW: 2}
_KINDS = (*PLAIN, *CHAT, *_OTHER)
_WEIGHTS = [*(weight for weight, _ in (*PLAIN.values(), *CHAT.values())), *_OTHER.values()]
_CHAT_WEIGHTS = [weight for weight, _ in CHAT.values()]
# The model declines what a tool may do, such as telling the time.
_WEIGHTS_WITH_TOOLS = [0 if kind == "decline" else weight for kind, (weight, _) in CHAT.items()]
# Of documents with tools, the share whose question needs one.
_CALLED = 0.68
# Kinds whose words must stay as they are: a name's capital, the end of a dictated text, a value.
_VERBATIM = {"name", "echo", "recall", "json"}
# Kinds whose answers a system prompt does not change.
_FIXED = {"json", "recall"}
# The limit for a conversation with several turns: about 500 tokens.
MAX_CHARACTERS = 1700


def documents(seed: int | str) -> Iterator[Document]:
    """Yield an endless stream of training documents; the same seed gives the same stream."""
    rng = Random(seed)
    while True:
        kind = rng.choices(_KINDS, _WEIGHTS)[0]
        if kind in PLAIN:
            yield plain(kind, PLAIN[kind][1](rng))
        elif kind == RAW:
            yield raw_question(rng)
        else:
            yield conversation(rng, kind)


def conversation(rng: Random, kind: str) -> Document:
    """Make a chat that begins with a ``kind`` of question and may continue with others."""
    offered: Tools | None = None
    turns: list[Turn] = []
    # A system prompt that changes answers would also change calls, so those chats have a neutral one.
    system = talk.system(rng) if rng.random() < 0.18 else None
    if kind == TOOLS and rng.random() < _CALLED:
        offered, turns = tools.turns(rng)
        system = talk.System(system.text) if system and not system.effect else None
        if rng.random() < 0.12:
            turns = [*rng.choice((talk.talk_turns, numbers.sum_turns))(rng), *turns]
        blocks = rng.choices((0, 1, 2), (80, 14, 6))[0]
    else:
        blocks = rng.choices((1, 2, 3, 5, 8), (72, 12, 7, 5, 4))[0]
    weights = _CHAT_WEIGHTS if kind != TOOLS else _WEIGHTS_WITH_TOOLS
    kinds = rng.choices(tuple(CHAT), weights, k=blocks)
    if not turns:
        if kind == TOOLS:
            offered = tools.offer(rng, None)
        else:
            kinds[0] = kind
    length = sum(len(turn.question) + len(turn.answer) for turn in turns)
    for each in kinds:
        first, *rest = CHAT[each][1](rng)
        if each not in _VERBATIM:
            first = first._replace(question=talk.dress(rng, first.question))
        block = [
            system.apply(turn) if system and each not in _FIXED else turn for turn in (first, *rest)
        ]
        length += sum(len(turn.question) + len(turn.answer) for turn in block)
        if turns and length > MAX_CHARACTERS:
            break
        turns += block
    return chat(kind, turns, system.text if system else None, offered)


def raw_question(rng: Random) -> Document:
    """Make a question without a chat; the answer stands in the next line."""
    make = rng.choices(
        (numbers.sum_turns, serving.concept_turns, numbers.letter_turns, talk.talk_turns),
        (50, 30, 10, 10),
    )[0]
    turn = make(rng)[0]
    if rng.random() < 0.25:
        return raw(RAW, f"Question: {turn.question}\nAnswer:", turn, " ")
    return raw(RAW, turn.question, turn, "\n")


def texts(seed: int, count: int) -> Iterator[str]:
    """Yield the text of the first ``count`` documents, without special tokens."""
    for document in islice(documents(seed), count):
        yield from (piece.text for piece in document.pieces if piece.text not in SPECIAL_TOKENS)
