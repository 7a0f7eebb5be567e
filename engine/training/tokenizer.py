"""The tokenizer: byte-level BPE with 1536 entries, trained on the corpus.

Byte-level BPE (GPT-2) can encode any text, because its alphabet is the 256 bytes. The split before
merging matters here: every digit is a token of its own, which lets the model copy numbers digit by
digit. So is every letter of a quoted word, which lets it count letters.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from engine.training.documents import BOS, IDS, SPECIAL_TOKENS, Document

VOCAB_SIZE = 1536
# Letters up to a closing quote, one by one; words with their space; digits, one by one; runs of
# punctuation; white space. Words with capitals are split only before a double quote, never before an
# apostrophe, because of words like "What's".
PATTERN = r"""[A-Za-z](?=[A-Za-z]*")|[a-z](?=[a-z]*')| ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s"""
IGNORED = -100  # a target that torch's cross_entropy skips


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train on ``texts``; the special tokens get the ids 0 to 8.

    Encoding with special tokens prepends ``<|bos|>``, which a plain completion needs.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
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
    for piece in document.pieces:
        special = piece.text in IDS
        part = [IDS[piece.text]] if special else encode_text(tokenizer, piece.text)
        ids += part
        learned += [piece.learned] * len(part)
    targets = [token if keep else IGNORED for token, keep in zip(ids[1:], learned[1:], strict=True)]
    return ids[:-1], targets
