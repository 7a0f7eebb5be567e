"""Sums and letter counts, each answered through a calculator call.

The model does not learn arithmetic. It learns to copy operands into an expression, to recognise the
operation, and to copy the calculator's output into a sentence.
"""

import re
from itertools import pairwise
from random import Random
from string import ascii_lowercase
from zlib import crc32

from engine.extensions.calculator import evaluate
from engine.training import words
from engine.training.documents import Turn, calculate

_DATA = words.load("numbers")
SUMS, LETTERS, PROBLEMS = _DATA["sums"], _DATA["letters"], _DATA["problems"]
OPERATIONS = {"plus": "+", "minus": "-", "times": "*", "over": "/"}


def held_out(expression: str) -> bool:
    """Return whether two neighbouring numbers of ``expression`` are a pair kept out of training.

    One pair in sixteen is kept out, in either order and with every operation.
    """
    numbers = re.findall(r"\d[\d,.]*", expression)
    return any(crc32(" ".join(sorted(pair)).encode()) % 16 == 0 for pair in pairwise(numbers))


def solved(question: str, expression: str) -> Turn:
    """Answer with ``17 + 25 = 42.``; a long decimal part is cut after two digits: ``3.33...``"""
    spaced = re.sub(r"(?<=[\d)])([-+*/])", r" \1 ", expression)
    result = calculate(expression)
    whole, _, decimals = result.partition(".")
    shown = f"{whole}.{decimals[:2]}..." if len(decimals) > 4 else f"{result}."
    return Turn(question, f"{spaced} = {shown}", expression)


def number(rng: Random) -> str:
    """Draw a whole number of one to six digits, small ones more often; some with commas."""
    digits = rng.choices((1, 2, 3, 4, 5, 6), (22, 34, 22, 12, 6, 4))[0]
    value = rng.randrange(10 ** (digits - 1), 10**digits)
    return f"{value:,}" if value > 999 and rng.random() < 0.15 else str(value)


def operands(rng: Random, operation: str) -> tuple[str, str]:
    """Draw two numbers; most divisions have a whole result, as in people's questions."""
    kind = rng.random()
    if operation == "over" and kind < 0.6:
        divisor, quotient = rng.randint(1, 99), rng.randint(1, 200)
        return str(divisor * quotient), str(divisor)
    if kind > 0.94 and operation != "over":
        return (
            f"{rng.randint(0, 99)}.{rng.randint(1, 99)}",
            f"{rng.randint(0, 99)}.{rng.randint(1, 9)}",
        )
    return number(rng), number(rng)


def tidy(expression: str) -> bool:
    """Return whether the calculator can evaluate the expression without rounding noise."""
    result = evaluate(expression)
    if result is None or "e" in result:
        return False
    return "/" in expression or len(result.partition(".")[2]) <= 4


def _usable(expression: str) -> bool:
    return tidy(expression) and not held_out(expression)


def _two_operands(rng: Random) -> Turn:
    """Ask for a sum of two numbers."""
    name = rng.choices(tuple(OPERATIONS), (40, 25, 22, 13))[0]
    while True:
        a, b = operands(rng, name)
        if _usable(expression := f"{a}{OPERATIONS[name]}{b}"):
            break
    return solved(ask(rng, name, a, b), expression)


def ask(rng: Random, operation: str, a: str, b: str, frames: str = "frames") -> str:
    """Phrase a question about ``a`` and ``b`` with the operation ``plus``, ``minus``, ...

    The sentence is from the list ``frames`` or ``held_out``.
    """
    own = SUMS[operation]
    slots = {"a": a, "b": b, "thing": rng.choice(words.THINGS), "name": rng.choice(words.GIRLS)}
    if frames == "frames" and rng.random() < 0.2:
        return _problem(rng, operation, a, b)
    if rng.random() < 0.3:
        return rng.choice(own[frames]).format(**slots)  # type: ignore[no-any-return]
    x = rng.choice(own["forms"]).format(**slots)
    question: str = rng.choice(SUMS[frames]).format(x=x)
    return question[0].upper() + question[1:]


def _problem(rng: Random, operation: str, a: str, b: str) -> str:
    """Put a word problem together, or a short command."""
    own = PROBLEMS[operation]
    if rng.random() < 0.2:
        return rng.choice(own["short"]).format(a=a, b=b)  # type: ignore[no-any-return]
    things, others = rng.sample(PROBLEMS["things"], 2)
    who = rng.choice(PROBLEMS["who"]) if rng.random() < 0.6 else rng.choice(words.NAMES)
    text = "".join(rng.choice(own[part]) for part in ("begin", "event", "end"))
    text = text.format(w=who, a=a, b=b, n=things, m=others)
    return text[0].upper() + text[1:]


def _longer(rng: Random) -> Turn:
    """Ask for a sum with three numbers, brackets, or a negative number."""
    while True:
        a, b, c = (str(rng.randrange(10**d)) for d in rng.choices((1, 2, 3), (8, 40, 25), k=3))
        p, q = rng.choices("+-*", (5, 3, 2), k=2)
        flat = f"{a}{p}{b}{q}{c}"
        forms = (flat, flat, f"({a}{p}{b}){q}{c}", f"{a}{p}({b}{q}{c})", f"-{a}{p}{b}")
        expression = rng.choice(forms)
        if _usable(expression):
            break
    x = re.sub(r"(?<=[\d)])([-+*])", r" \1 ", expression) if rng.random() < 0.7 else expression
    if rng.random() < 0.15 and "(" not in x and "-" not in x:
        x = x.replace("+", "plus").replace("*", "times")
        x = x if " " in x else expression
    question: str = rng.choice(SUMS["frames"]).format(x=x)
    return solved(question, expression)


def _in_words(rng: Random) -> Turn:
    """Ask for ``seven plus five``, with numbers up to twenty."""
    name = rng.choice(("plus", "minus", "times"))
    while True:
        a, b = rng.randrange(21), rng.randrange(21)
        if _usable(expression := f"{a}{OPERATIONS[name]}{b}"):
            break
    x = f"{SUMS['numbers'][a]} {name} {SUMS['numbers'][b]}"
    question: str = rng.choice(SUMS["frames"]).format(x=x)
    return solved(question[0].upper() + question[1:], expression)


def sum_turns(rng: Random) -> list[Turn]:
    """Ask for a sum, and sometimes for a second step from its result."""
    make = rng.choices((_two_operands, _longer, _in_words), (84, 12, 4))[0]
    turn = make(rng)
    result = calculate(turn.expression or "")
    if rng.random() > 0.12 or "." in result or result.startswith("-"):
        return [turn]
    while True:
        b = number(rng)
        question, sign = rng.choice(SUMS["next"])
        if _usable(expression := f"{result}{sign}{b}"):
            return [turn, solved(question.format(b=b), expression)]


def count_turn(rng: Random, word: str, letter: str, frames: str = "frames") -> Turn:
    """Ask to count ``letter`` in ``word``, both lower case; the word may be capitalised."""
    quote = rng.choice(('"', '"', '"', "'"))
    shown = word.capitalize() if quote == '"' and rng.random() < 0.15 else word
    spelling = rng.choice(LETTERS["letter"]).format(l=letter)
    question: str = rng.choice(LETTERS[frames]).format(l=spelling, w=f"{quote}{shown}{quote}")
    return counted(question, word, letter)


def counted(question: str, word: str, letter: str) -> Turn:
    """Answer with ``The letter l occurs 2 times in "hello".``"""
    count = word.count(letter)
    answer = f'The letter {letter} occurs {count} time{"" if count == 1 else "s"} in "{word}".'
    return Turn(question, answer, f'"{word}".count("{letter}")')


def word_and_letter(rng: Random) -> tuple[str, str]:
    """Draw a word and a letter: mostly one that occurs, so that the model also learns the answer 0."""
    word = words.counted_word(rng)
    return word, rng.choice(word if rng.random() < 0.85 else ascii_lowercase)


def letter_turns(rng: Random) -> list[Turn]:
    """Ask for a letter count, and sometimes for a second one with the same letter or word."""
    word, letter = word_and_letter(rng)
    first = count_turn(rng, word, letter)
    if rng.random() > 0.12:
        return [first]
    if rng.random() < 0.5:
        word = words.counted_word(rng)
        question = rng.choice(LETTERS["next_word"]).format(w=f'"{word}"')
    else:
        letter = rng.choice(word)
        question = rng.choice(LETTERS["next_letter"]).format(l=letter)
    return [first, counted(question, word, letter)]
