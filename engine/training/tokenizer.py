"""The tokenizer: byte-level BPE with 2048 entries, trained on the corpus.

Byte-level BPE (GPT-2) can encode any text, because its alphabet is the 256 bytes. The split before
merging matters here: every digit is a token of its own, which lets the model copy numbers digit by
digit. So is every letter of a quoted word, which lets it count letters; strings in JSON are not split.

A word has the same tokens with and without a space before it, except that the first one may have the
space: ``plu`` ``mber`` and ``(space)plu`` ``mber``. Otherwise a small model could not copy an unknown
word from a sentence into JSON. So the merges are learned on words without spaces, and those that join a
space to the beginning of a word come last. Before a name the space is a token of its own, so that
``Paris`` is the same token everywhere.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from engine.training.documents import BOS, IDS, SPECIAL_TOKENS, Document, joined

VOCAB_SIZE = 2048
# Entries that join a space to the beginning of a word.
SPACED = 600
# Letters up to a closing quote, one by one; words with their space; digits, one by one; runs of
# punctuation; white space. Words with capitals are split only before a double quote, never before an
# apostrophe, because of words like "What's". A quote that ends a string in JSON splits no word.
PATTERN = (
    r"""[A-Za-z](?=[A-Za-z]*"(?![:}\]]|,"|, "))|[a-z](?=[a-z]*')"""
    r"""| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s"""
)
SPACE = "\u0120"  # a space among the 256 characters that stand for bytes
IGNORED = -100  # a target that torch's cross_entropy skips


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train on ``texts``; the special tokens get the ids 0 to 8.

    Encoding with special tokens prepends ``<|bos|>``, which a plain completion needs.
    """
    texts = list(texts)
    split = re.compile(PATTERN)
    parts = Counter(part for text in texts for part in split.findall(text))
    first = Tokenizer(models.BPE())
    first.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - SPACED,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Once for every few times that it occurs, because the library counts again. This leaves out made-up
    # words, which occur once, and whose syllables would take the place of real words.
    bare = (part.strip(" ") for part, count in parts.items() for _ in range(count // 6))
    first.train_from_iterator(bare, trainer)
    learned = json.loads(first.to_str())["model"]
    vocabulary: dict[str, int] = learned["vocab"]
    merges = [tuple(pair) for pair in learned["merges"]]
    starts: Counter[str] = Counter()
    for part, count in parts.items():
        word = part.removeprefix(" ")
        # A word that is also written small, such as "The", is no name.
        is_name = word[:1].isupper() and parts[f" {word.lower()}"] < count
        if word != part and word and not is_name:
            starts[first.encode(word).tokens[0]] += count
    for start, _ in islice(starts.most_common(), VOCAB_SIZE - len(vocabulary)):
        vocabulary[SPACE + start] = len(vocabulary)
        merges.append((SPACE, start))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, IDS[BOS])]
    )
    return tokenizer


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Encode plain text: ``<|bos|>`` typed by a user is just characters."""
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def encode_document(tokenizer: Tokenizer, document: Document) -> tuple[list[int], list[int]]:
    """Return a document's inputs and targets, two lists of equal length.

    The target of a position is the next token, or ``IGNORED`` if the user or the calculator
    wrote it.
    """
    ids: list[int] = []
    learned: list[bool] = []
    for group in joined(document.pieces):
        text = "".join(piece.text for piece in group)
        if text in IDS:
            ids.append(IDS[text])
            learned.append(group[0].learned)
            continue
        # A token counts where its last character does.
        writers = [piece.learned for piece in group for _ in piece.text]
        tokenizer.encode_special_tokens = True
        encoding = tokenizer.encode(text, add_special_tokens=False)
        ids += encoding.ids
        learned += [writers[end - 1] for _, end in encoding.offsets]
    targets = [token if keep else IGNORED for token, keep in zip(ids[1:], learned[1:], strict=True)]
    return ids[:-1], targets
