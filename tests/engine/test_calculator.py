"""The calculator's language, and that it rejects everything else."""

import ast
import re
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.output.calculator import MAX_LENGTH, MAX_MAGNITUDE, evaluate


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17+25", "42"),
        (" 17 - 25 ", "-8"),
        ("-3 * -(2 + 4)", "18"),
        ("10/4", "2.5"),
        ("10/5", "2.0"),
        ("0.1+0.2", "0.30000000000000004"),
        (".5*4", "2.0"),
        ("1,234,567+1", "1234568"),
        ("1,000.5*2", "2001.0"),
        ('"hello".count("l")', "2"),
        ("'hello'.count('l')", "2"),
        ('"it\'s".count("\'")', "1"),
        ('"hello".count("ll") + 1', "2"),
        ('"a,b 1,000".count(",")', "2"),
        ('"café".count("é")', "1"),
        ('"hello".count("")', "6"),
    ],
)
def test_what_it_knows(expression, result):
    assert evaluate(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "   ",
        "1/0",
        "1/(2-2)",
        "2**9",
        "9//2",
        "9%2",
        "+5",
        "~5",
        "1e3",
        "1_000",
        "0x10",
        "1j",
        "1,5",
        "12,34",
        "(1,2)",
        "True",
        "a",
        "a+1",
        "abs(1)",
        "__import__('os')",
        "().__class__",
        "''.join('a')",
        '"a"',
        '"a"+"b"',
        '"a"*3',
        '"a" "b".count("a")',
        '"""a""".count("a")',
        '"a".count("a", 0)',
        '"a".count(1)',
        '(1).count("a")',
        'b"a".count("a")',
        'f"{1}".count("a")',
        '"a\\n".count("a")',
        "1\n+1",
        "1 if 1 else 2",
        "[1][0]",
        "lambda: 1",
        "1;2",
        "#",
        "1 # 2",
        "999999999999999*10",
        "١+٢",
        "1+\x00",
        "\ud800",
        "(" * 150 + "1" + ")" * 40,
        "(" * 95 + "1" + ")" * 95,
        "-" * 150 + "1",
        "1" * (MAX_LENGTH + 1),
        "1" * MAX_LENGTH,
    ],
)
def test_what_it_refuses(expression):
    if expression == "(" * 95 + "1" + ")" * 95:
        # Redundant parentheses leave no trace in the tree; they are harmless.
        assert evaluate(expression) in {"1", None}
    else:
        assert evaluate(expression) is None


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_any_text_gives_a_number_or_none(text):
    result = evaluate(text)
    assert result is None or re.fullmatch(r"-?\d+(\.\d+)?(e-\d+)?", result)


PIECES = [
    *"0123456789+-*/().,'\" ",
    "**", "//", ".count(", ".__class__", "__import__", "eval", "exec", "os", "lambda", "count",
    "[", "]", "{", "}", ":", "\\", "\n", "e9", "_", "if", "for", "in", ":=", "b'", "f'", "\x00",
    "99999999999", '"a"', "'l'", "(-", "True", "None", "!", "@", "%", "<<", "#", ";",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@settings(max_examples=1500)
@example("9**9**9")
@example("'a'.count.__self__")
@example("''.count.__class__.__mro__")
def test_what_it_answers_lies_inside_the_language(text):
    """Parse accepted expressions with Python: they contain no escape routes."""
    result = evaluate(text)
    if result is None:
        return
    without_strings = re.sub(r"\"[^\"]*\"|'[^']*'", '""', text)
    numbers = re.sub(r"(?<=\d),(?=\d{3})", "", without_strings).strip()
    allowed = (
        ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div,
        ast.Constant, ast.Call, ast.Attribute, ast.Load,
    )  # fmt: skip
    for node in ast.walk(ast.parse(numbers, mode="eval")):
        assert isinstance(node, allowed)
        assert getattr(node, "attr", "count") == "count"
    assert abs(float(result)) < MAX_MAGNITUDE


# An evaluator that shares nothing with the calculator: it reads the text by itself, left to right.

TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?<![.\d])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)
    |(?P<count>(?P<q>["'])(?P<whole>.*?)(?P=q)\s*\.count\(\s*(?P<p>["'])(?P<part>.*?)(?P=p)\s*\))
    |(?P<sign>[-+*/()]))""",
    re.VERBOSE,
)


class Reader:
    """sum = product {(+|-) product}
    product = factor {(*|/) factor}
    factor = -factor | (sum) | number | count
    """

    def __init__(self, text):
        self.tokens = []
        at, text = 0, text.strip()
        while at < len(text):
            found = TOKEN.match(text, at)
            at = found.end()
            if found["number"]:
                plain = found["number"].replace(",", "")
                self.tokens.append(float(plain) if "." in plain else int(plain))
            elif found["count"]:
                self.tokens.append(found["whole"].count(found["part"]))
            else:
                self.tokens.append(found["sign"])

    def next_is(self, *signs):
        return bool(self.tokens) and self.tokens[0] in signs and self.tokens.pop(0)

    def sum(self):
        value = self.product()
        while sign := self.next_is("+", "-"):
            other = self.product()
            value = bounded(value + other if sign == "+" else value - other)
        return value

    def product(self):
        value = self.factor()
        while sign := self.next_is("*", "/"):
            other = self.factor()
            value = bounded(value * other if sign == "*" else value / other)
        return value

    def factor(self):
        if self.next_is("-"):
            return -self.factor()
        if self.next_is("("):
            value = self.sum()
            assert self.next_is(")")
            return value
        return self.tokens.pop(0)


def bounded(value):
    if abs(value) >= MAX_MAGNITUDE:
        raise OverflowError
    return value


def read(text):
    """Return the right result of an expression of the calculator's language."""
    try:
        return str(Reader(text).sum())
    except (ZeroDivisionError, OverflowError):
        return None


def grouped(number):
    return f"{number:,}"


atoms = st.one_of(
    st.integers(0, 99_999).map(str),
    st.integers(1000, 9_999_999).map(grouped),
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


@given(expressions.filter(lambda text: len(text) <= MAX_LENGTH))
@settings(max_examples=500, deadline=None)
@example("1,000,000*1,000,000*1,000,000/1,000,000")
@example("- -3")
@example("5.*2")
def test_it_says_what_an_independent_evaluator_says(text):
    assert evaluate(text) == read(text)


@given(st.text("abcxyz ,.", max_size=20), st.text("abcxyz ,.", max_size=2), st.sampled_from("\"'"))
def test_counting_equals_pythons(whole, part, quote):
    expression = f"{quote}{whole}{quote}.count({quote}{part}{quote})"
    assert evaluate(expression) == str(whole.count(part))


def test_it_runs_off_the_main_thread():
    results = {}

    def work(expression):
        results[expression] = evaluate(expression)

    threads = [threading.Thread(target=work, args=(text,)) for text in ("6*7", "9**9**9", "1/0")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"6*7": "42", "9**9**9": None, "1/0": None}
