"""From a regular expression to a mask over the vocabulary, without a library.

The engine's masks come from llguidance. This is the same idea in its smallest form, for readers and
for lesson 15:

1. The *derivative* of an expression by a byte matches what may follow that byte. So an expression is
   a state, and its derivatives are the next states. `automaton` explores them all.
2. A token is allowed in a state if all its bytes can be walked from there. `token_mask` tries each.

Sources: J. A. Brzozowski, "Derivatives of Regular Expressions" (Journal of the ACM 11, 1964);
V. Antimirov, "Partial Derivatives of Regular Expressions and Finite Automaton Constructions"
(Theoretical Computer Science 155, 1996), for states that are sets of alternatives. llguidance takes
derivatives, too (its crate `derivre`), but only of the states that an output reaches, and it walks a
trie of the vocabulary instead of each token.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from engine.extensions.grammars.regex_syntax import (
    EMPTY,
    NOTHING,
    Byte,
    Either,
    Regex,
    RegexError,
    Repeat,
    Seq,
    either,
    options_of,
    parse,
    seq,
)

MAX_ALTERNATIVES = 4_000  # over all states: a few seconds at worst


def nullable(regex: Regex) -> bool:
    """Return whether the expression matches the empty text."""
    match regex:
        case Byte():
            return False
        case Seq(parts):
            return all(map(nullable, parts))
        case Either(options):
            return any(map(nullable, options))
        case Repeat(body, least, _):
            return least == 0 or nullable(body)


@lru_cache(10_000)  # states share alternatives
def derivative(regex: Regex, byte: int) -> Regex:
    """Return an expression for what may follow `byte`; NOTHING if the byte is not allowed."""
    match regex:
        case Byte(values):
            return EMPTY if byte in values else NOTHING
        case Either(options):
            return either([derivative(one, byte) for one in options])
        case Repeat(body, least, most):
            again = Repeat(body, max(least - 1, 0), most - 1) if most > 1 else EMPTY
            return _then(derivative(body, byte), again)
        case Seq(parts):
            found = []
            for index, part in enumerate(parts):
                found.append(_then(derivative(part, byte), seq(*parts[index + 1 :])))
                if not nullable(part):
                    break
            return either(found)


def _then(regex: Regex, rest: Regex) -> Regex:
    """Append `rest` to each alternative, so that a state stays a set of a few sequences."""
    return either([seq(one, rest) for one in options_of(regex)])


class Automaton(NamedTuple):
    """A deterministic automaton. It starts in state 0.

    moves      {(state, byte): the next state}; without an entry, the byte is not allowed there
    accepting  states in which the text may end
    """

    moves: dict[tuple[int, int], int]
    accepting: frozenset[int]


def automaton(pattern: str) -> Automaton:
    """Return the automaton of the texts that match the whole pattern.

    From each of its states, an accepting one can be reached. Raises RegexError: see `parse`; also if
    the states need too much memory, as those of `[ab]*a[ab]{20}` would.
    """
    start = parse(pattern)
    states: dict[Regex, int] = {start: 0}
    moves: dict[tuple[int, int], int] = {}
    alternatives, groups = 0, _alike(start)
    for state, regex in enumerate(queue := [start]):  # grows while the loop runs
        alternatives += len(options_of(regex))
        if alternatives > MAX_ALTERNATIVES:
            raise RegexError(
                f"the expression is too large: it has more than {len(states):,} states; use smaller "
                "counts, and fewer counts within counts"
            )
        for group in groups:
            after = derivative(regex, group[0])
            if after != NOTHING:
                if after not in states:
                    states[after] = len(queue)
                    queue.append(after)
                moves.update(dict.fromkeys([(state, byte) for byte in group], states[after]))
    return Automaton(moves, frozenset(state for one, state in states.items() if nullable(one)))


def _alike(regex: Regex) -> Collection[list[int]]:
    """Group the bytes that are in the same sets of `regex`: they lead to the same states."""
    sets = list(_sets(regex))
    groups: dict[tuple[bool, ...], list[int]] = {}
    for byte in range(256):
        groups.setdefault(tuple(byte in values for values in sets), []).append(byte)
    return groups.values()


def _sets(regex: Regex) -> set[frozenset[int]]:
    match regex:
        case Byte(values):
            return {values}
        case Seq(inner) | Either(inner):
            return set[frozenset[int]]().union(*map(_sets, inner))
        case Repeat(body):
            return _sets(body)


def token_mask(
    automaton: Automaton, state: int, vocabulary: Sequence[bytes], end_ids: Collection[int]
) -> list[bool]:
    """Return for each token whether it is allowed in `state`.

    vocabulary  the bytes of each token; a token without bytes is never allowed
    end_ids     tokens that end the text: allowed where the text may end, whatever their bytes

    Some token is allowed in each state if every single byte is a token, as in byte-level vocabularies.
    """
    allowed = [token != b"" and walk(automaton, state, token) is not None for token in vocabulary]
    for end in end_ids:
        allowed[end] = state in automaton.accepting
    return allowed


def walk(automaton: Automaton, state: int, token: bytes) -> int | None:
    """Return the state after a token; None if the token is not allowed in `state`."""
    after: int | None = state
    for byte in token:
        if after is not None:
            after = automaton.moves.get((after, byte))
    return after
