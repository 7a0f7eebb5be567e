"""The automaton without a library matches what `re` matches and allows what llguidance allows."""

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest

from engine.core.byte_tokenizer import ByteTokenizer
from engine.core.compute.logits_processors import as_array
from engine.core.sampling_params import StructuredOutput
from engine.core.tokenizer import Tokenizer
from engine.extensions.grammars.grammar import GrammarCompiler
from engine.extensions.grammars.regex_mask import (
    MAX_ALTERNATIVES,
    Automaton,
    automaton,
    token_mask,
    walk,
)
from engine.extensions.grammars.regex_syntax import RegexError
from engine.models.text.hf_tokenizer import HFTokenizer

CHARACTERS = 'abcdeht n0123,.:-"{é'
WORDS = ("animal", '": "', "the end", "r\u00e9sum\u00e9 ")
SETS = (".", "[0-9]", "[a-zA-Z ]", '[^"]', "[^a-z0-9]", "[ -~]", r"[^\]\-^]")
COUNTS = ("*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{0}")


def expression(chance: random.Random, depth: int) -> str:
    """Return a random expression."""
    parts = range(chance.randint(2, 3))
    kind = chance.random() if depth else 0
    if kind < 0.15:
        return chance.choice(SETS)
    if kind < 0.25:
        return chance.choice(WORDS)
    if kind < 0.35:
        return re.escape("".join(chance.choices(CHARACTERS, k=len(parts))))
    if kind < 0.6:
        return "".join(expression(chance, depth - 1) for _ in parts)
    if kind < 0.8:
        return f"({'|'.join(expression(chance, depth - 1) for _ in parts)})"
    return f"({expression(chance, depth - 1)}){chance.choice(COUNTS)}"


def expressions(seed: int, count: int) -> Iterator[tuple[str, Automaton]]:
    """Yield random expressions and their automata."""
    chance = random.Random(seed)
    while count:
        pattern = expression(chance, chance.randint(1, 3))
        try:
            yield pattern, automaton(pattern)
        except RegexError as error:
            assert "too large" in str(error)
        count -= 1


def text_of(machine: Automaton, chance: random.Random) -> bytes:
    """Return a text that matches, or nearly."""
    moves = defaultdict(list)
    for (state, byte), after in machine.moves.items():
        moves[state].append((byte, after))
    state, text = 0, b""
    while moves[state] and not (state in machine.accepting and chance.random() < 0.3):
        byte, state = chance.choice(moves[state])
        text += bytes([byte])
    at = chance.randrange(len(text) + 1)
    return chance.choice([text, text, text[:at] + b"a" + text[at:], text[:at] + text[at + 1 :]])


def test_a_text_is_accepted_if_it_matches() -> None:
    chance, matched = random.Random(1), 0
    for pattern, machine in expressions(1, 60):
        alive = set(machine.accepting)
        while more := {a for (a, _), b in machine.moves.items() if b in alive} - alive:
            alive |= more
        assert {0, *machine.moves.values()} <= alive, "each state leads to an accepting one"
        for text in [text_of(machine, chance) for _ in range(6)]:
            accepted = walk(machine, 0, text) in machine.accepting
            try:
                matches = re.fullmatch(pattern, text.decode()) is not None
            except UnicodeDecodeError:
                matches = False
            assert accepted == matches, (pattern, text)
            matched += matches
    assert 80 < matched < 330


@cache
def vocabulary(tokenizer: Tokenizer) -> list[bytes]:
    special = tokenizer.special_ids | tokenizer.eos_ids
    ids = range(tokenizer.vocab_size)
    return [b"" if token in special else tokenizer.token_bytes(token) for token in ids]


def masks(
    tokenizer: Tokenizer, seed: int, count: int
) -> Iterator[tuple[str, set[int], set[int], list[int]]]:
    """Yield (expression, our tokens, llguidance's tokens, the tokens that it would force)."""
    chance, grammars = random.Random(seed), GrammarCompiler(tokenizer)
    words = vocabulary(tokenizer)
    for pattern, machine in expressions(seed, count):
        constraint, output, state = grammars.constraint(StructuredOutput("regex", pattern)), [], 0
        for _ in range(6):
            mine = token_mask(machine, state, words, tokenizer.eos_ids)
            theirs = as_array(constraint.mask(output), len(words))
            ours = {token for token, allowed in enumerate(mine) if allowed}
            yield pattern, ours, set(theirs.nonzero()[0].tolist()), constraint.forced(output)
            nexts = sorted(ours & set(theirs.nonzero()[0].tolist()) - tokenizer.eos_ids)
            if not nexts:
                break
            output.append(chance.choice(nexts))
            after = walk(machine, state, words[output[-1]])
            assert after is not None
            state = after


def test_over_bytes_the_masks_are_those_of_llguidance() -> None:
    count = 0
    for pattern, ours, theirs, _ in masks(ByteTokenizer(), 2, 40):
        assert ours == theirs, pattern
        count += len(ours) > 1
    assert count > 60


def test_over_a_vocabulary_llguidance_forbids_no_more_than_other_spellings_of_forced_text() -> None:
    """Where only one text can follow, it allows the tokens that the tokenizer would use."""
    other_spellings = equal = 0
    for pattern, ours, theirs, forced in masks(HFTokenizer("engine/bundled"), 3, 40):
        assert theirs <= ours, pattern
        if theirs < ours:
            assert theirs == {forced[0]}, pattern
            other_spellings += 1
        equal += theirs == ours
    assert equal > 60
    assert other_spellings > 5


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "position 0"),
        ("a)", "position 1"),
        ("[z-a]", "range"),
        ("[^é]", "ASCII"),
        ("a{3,2}", "position 2"),
        ("*a", "position 0"),
        ("a+?", "MIN_REPEAT"),
        ("^a$", "AT"),
        ("(?i)a", r"\(\?i"),
        ("a\\", "position 1"),
        ("a{" + "9" * 500 + "}", "too large"),
        ("(" * 900, "50 deep"),
        ("[ab]*a[ab]{20}", "too large"),
        ("a" * 1001, "too large"),
        (f"a{{{MAX_ALTERNATIVES}}}", "too large"),
    ],
)
def test_a_wrong_or_hostile_expression_is_an_error_that_names_the_place(
    pattern: str, words: str
) -> None:
    with pytest.raises(RegexError, match=words):
        automaton(pattern)
