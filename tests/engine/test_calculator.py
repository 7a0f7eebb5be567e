"""The calculator's language, and attacks by a model or the author of its prompt: all of Python.

Whatever is tried: no exception, a bounded number of steps, and an answer only where Python gives the
same one to an expression of numbers, `+ - * /` and `count`.
"""

import ast
import random
import re
import sys

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.extensions.calculator import MAX_LENGTH, MAX_MAGNITUDE, evaluate

ATTACKS = re.split(
    r" \|\s",
    r"""
().__class__.__base__.__subclasses__() | ''.__class__.__mro__[1] | __import__('os').system('id') |
(1).real | 1 .__add__(1) | lambda: 1 | (lambda x: x)(1) | [x for x in (1,2)] | {1: 2} | (1,2) |
f'{1}' | f'{1!r:>9}'.count('a') | '{0.__class__}'.format(1) | '%999999999d' % 1 | (x := 5) |
9**9**9 | 2**-1 | 7//2 | 7%2 | 1<<99999 | 1@1 | ~1 | +1 | 'a' | 'a'+'b' | 'a'*10**9 |
('a'*999999999).count('a') | 'a'.count.__self__ | 'a'.count('a').__class__ | 'a'.count(*['a']) |
'a'.count(x='a') | 'a'.count('a'.count('a')) | 'a'.count('a','a') | 'aa'.count('a', 0, 1) |
'a'.count(1) | (1).count('a') | 'a'.upper().count('A') | ('a').count('a') | 'a'.count(('a')) |
'a'.count(-'a') | -'a' | 'a'.count('a')('b') | 'a'.count('a').count('a') | 'a' 'b'.count('a') |
'a' .count('a') | b'a'.count(b'a') | r'a'.count('a') | '''a'''.count('a') | '\x41'.count('A') |
'\'.count('a') | eval('1') | abs(1) | globals() | import os | 1;import os | 1 if 1 else 2 |
1and 2 | not 1 | 1 < 2 | True | None | ... | await 1 | yield 1 | a+1 | 1e3 | 1e400 | 0x7f | 0b1 |
1j | 1_0 | 012 | 1.2.3 | 1..count('a') | 1,5 | 12,34 | 999999999999999999999999*9 |
999999999999999*999999999999999/999999999999999 | #1 | 1 # 2 | $1 | `1` | 1/0 | 1/(2-2)
""".strip(),
)
UNICODE = [
    3 * '"' + "a", "\x00", "1\x00+1", "'\x00'.count('\x00')", "1\n+1", "1\n2", "\t1", "1\r", "\x0c1",
    "1\x1b[2J", "", "   ",
    "\u0661+\u0662", "\uff11+\uff12", "1\u22122", "2\u00d73", "6\u00f72", "\u00b2", "1\u00a0+1",
    "\u202e1+1", "\u200b1", "\ufeff1", "\ud800", "'\ud800'.count('\ud800')",
    "\U0001d7d9+1", "\uff081\uff09",
]  # fmt: skip
LARGE = [
    "-" * 199 + "1", "(" * 99 + "1" + ")" * 99, "(" * 199, "[" * 99 + "]" * 99, "'" * 199, "\"'" * 99,
    "1," * 99, "1,111" * 39, "1+" * 99 + "1", "1*(" * 49 + "1" + ")" * 49, "'a'.count(" * 19, "." * 199,
    "9" * 200, "1" * (MAX_LENGTH + 1), "0." + "9" * 198, "." * 10**6, "1+" * 10**6 + "1", "(" * 10**6,
]  # fmt: skip
HONEST = ["17+25", "(1+2)*3", "1,000*2", "'hello'.count('l')", '"a b".count("b")', "10/4", "-3*.5"]
JOINTS = ["", " ", *"+-*/.,()'\"\\\n", "**", ".count(", "[0]"]
# More than any text of 200 characters takes: the parser is C, the rest visits each character and node.
MOST_LINES = 2500
HARMLESS = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div,
    ast.Constant, ast.Call, ast.Attribute, ast.Load,
)  # fmt: skip


def python_tree(expression: str) -> ast.Expression:
    """Parse an accepted expression with Python, without the commas in its numbers."""
    text = re.sub(
        r"""("[^"]*"|'[^']*')|(?<=\d),(?=\d{3})""", lambda found: found[1] or "", expression
    )
    return ast.parse(text.strip(), mode="eval")


def value(node: ast.expr) -> int | float:
    return eval(compile(ast.Expression(node), "expression", "eval"), {"__builtins__": {}})


def counted(expression: str) -> tuple[str | None, int]:
    """Return the answer and the number of Python lines that ran."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return evaluate(expression), lines
    finally:
        sys.settrace(before)


def withstands(expression: str) -> bool:
    """Return whether there was an answer; check that it equals Python's, is short and was cheap."""
    result, lines = counted(expression)
    assert lines < MOST_LINES, f"{lines} lines for {expression[:80]!r}"
    if result is None:
        return False
    assert re.fullmatch(r"-?\d+(\.\d+)?(e-\d+)?", result) and len(result) < 30
    tree = python_tree(expression)
    for node in ast.walk(tree):
        assert isinstance(node, HARMLESS), expression
        assert getattr(node, "attr", "count") == "count"
        assert not isinstance(getattr(node, "value", None), bool | bytes | complex)
    assert result == str(value(tree.body)), expression
    assert abs(float(result)) < MAX_MAGNITUDE
    return True


def mutant(rng: random.Random) -> str:
    """Combine two expressions, with pieces removed, doubled or swapped."""
    first, second = (rng.choice(rng.choice([ATTACKS, UNICODE, HONEST, HONEST])) for _ in range(2))
    text = first + rng.choice(JOINTS) + second
    for _ in range(rng.randrange(4)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randrange(6))
        text = text[:start] + rng.choice(["", text[start:end] * 2, *JOINTS]) + text[end:]
    return text


def test_no_attack_gets_through_raises_or_takes_long(soak: bool, first_seed: int) -> None:
    rng = random.Random(first_seed)
    mutants = [mutant(rng) for _ in range(200_000 if soak else 6000)]
    answered = sum(withstands(text) for text in [*UNICODE, *LARGE, *mutants])
    assert answered > 100, "the attacks are too far from the language to test its border"
    harmless = {text for text in ATTACKS if withstands(text)}
    assert harmless == {"('a').count('a')", "'a'.count(('a'))", "'a' .count('a')"}


atoms = st.one_of(
    st.integers(0, 99_999).map(str),
    st.integers(1000, 9_999_999).map("{:,}".format),
    st.tuples(st.integers(0, 999), st.integers(0, 99)).map(lambda p: f"{p[0]}.{p[1]}"),
    st.tuples(st.text("ab,1 ", max_size=6), st.sampled_from("ab,1")).map(
        lambda p: f"\"{p[0]}\".count('{p[1]}')"
    ),
)
expressions = st.recursive(
    atoms,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", " - ", "*", " / "]), part).map("".join),
        part.map(lambda inner: f"({inner} )"),
        part.map(lambda inner: f"-({inner})"),
    ),
    max_leaves=6,
)


def fits(expression: str) -> bool:
    """Whether all parts of an expression have a value below the limit."""
    parts = [one for one in ast.walk(python_tree(expression)) if isinstance(one, ast.BinOp)]
    try:
        return all(abs(value(part)) < MAX_MAGNITUDE for part in parts)
    except ZeroDivisionError:
        return False


@given(expressions.filter(lambda text: len(text) <= MAX_LENGTH))
@settings(max_examples=300)
@example("1,000,000*1,000,000*1,000,000/1,000,000")
@example("- -3")
@example("5.*2")
@example(" 1,000.5*.2")
@example('"it\'s".count("\'") + "café".count("é")')
@example('"a,b 1,000".count(",")')
@example('"hello".count("")')
def test_every_expression_of_the_language_has_its_answer(expression: str) -> None:
    assert withstands(expression) == fits(expression)
