"""The corpus: an endless stream of documents from one seed.

Nothing is downloaded or stored. The same seed gives the same documents in the same order on every
machine, so a training run can be repeated exactly, and resumed after an interruption.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from engine.training import numbers, serving, stories, talk
from engine.training.documents import SPECIAL_TOKENS, Document, Turn, chat, plain

# Frequencies of the kinds of documents, in percent. Stories are long, so they make up about half
# of all tokens.
PLAIN: dict[str, tuple[int, Callable[[Random], str]]] = {
    "story": (15, stories.plain_story),
    "prose": (2, serving.prose),
}
CHAT: dict[str, tuple[int, Callable[[Random], list[Turn]]]] = {
    "sum": (20, numbers.sum_turns),
    "letters": (12, numbers.letter_turns),
    "concept": (19, serving.concept_turns),
    "comparison": (5, serving.comparison_turns),
    "story chat": (11, stories.turns),
    "talk": (6, talk.talk_turns),
    "decline": (6, talk.decline_turns),
    "name": (4, talk.name_turns),
    "echo": (3, talk.echo_turns),
}
_KINDS = (*PLAIN, *CHAT)
_WEIGHTS = [weight for weight, _ in (*PLAIN.values(), *CHAT.values())]
_CHAT_WEIGHTS = [weight for weight, _ in CHAT.values()]
# The limit for a conversation with several turns: about 500 tokens.
MAX_CHARACTERS = 1700


def documents(seed: int | str) -> Iterator[Document]:
    """Yield an endless stream of training documents; the same seed gives the same stream."""
    rng = Random(seed)
    while True:
        kind = rng.choices(_KINDS, _WEIGHTS)[0]
        yield plain(kind, PLAIN[kind][1](rng)) if kind in PLAIN else conversation(rng, kind)


def conversation(rng: Random, kind: str) -> Document:
    """Make a chat that begins with a ``kind`` of question and may continue with others."""
    blocks = rng.choices((1, 2, 3, 5, 8), (72, 12, 7, 5, 4))[0]
    kinds = [kind, *rng.choices(tuple(CHAT), _CHAT_WEIGHTS, k=blocks - 1)]
    system = talk.system(rng) if rng.random() < 0.18 else None
    turns: list[Turn] = []
    for each in kinds:
        first, *rest = CHAT[each][1](rng)
        if each not in {"name", "echo"}:  # keep a name's capital, and the end of a dictated text
            first = first._replace(question=talk.dress(rng, first.question))
        block = [system.apply(turn) if system else turn for turn in (first, *rest)]
        length = sum(len(turn.question) + len(turn.answer) for turn in (*turns, *block))
        if turns and length > MAX_CHARACTERS:
            break
        turns += block
    return chat(kind, turns, system.text if system else None)


def texts(seed: int, count: int) -> Iterator[str]:
    """Yield the text of the first ``count`` documents, without special tokens."""
    for document in islice(documents(seed), count):
        yield from (piece.text for piece in document.pieces if piece.text not in SPECIAL_TOKENS)
