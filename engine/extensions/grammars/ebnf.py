r"""Translate EBNF, as vLLM's clients write it, into Lark.

    root ::= "yes" | item+        start: "yes" | ITEM+
    item ::= [a-z]{2,3} # a word  ITEM: /[a-z]/{2,3}

Without a recursive rule the grammar becomes one terminal, which llguidance compiles into an
automaton. A grammar with recursion is parsed character by character: EBNF has no lexemes, so
`[a-z]* "end"` matches "weekend", but the library's lexer would take the longest lexeme and never find
the "end". Such a mask takes about 2 ms with a vocabulary of 150,000 tokens.

Every mistake in the text is found here, so the line and the column of an error are the client's own.

Source: xgrammar's `EBNFParser` (`cpp/grammar_parser.cc`), which reads llama.cpp's GBNF
(`llama.cpp/grammars/README.md`) with C's escapes. vLLM tells EBNF from Lark by its `::=`, too
(`vllm/v1/structured_output/utils.py`). Differs from xgrammar: lookahead and its functions, such as
`TagDispatch`, are rejected.
"""

import json
import re
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, NoReturn

from engine.extensions.grammars.grammar_error import GrammarError

MAX_REPEATS = 10_000  # of one element: the automaton has a state for each of them
MAX_DEPTH = 100  # of groups
_RULE = re.compile(r"^[ \t]*[\w.-]+\s*::=", re.MULTILINE)
_ESCAPE = r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU\n])"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n]+|\#[^\n]*)
    |(?P<define>(?P<defined>[A-Za-z_][\w.-]*)(?:[ \t\r\n]|\#[^\n]*\n)*::=)
    |(?P<name>[A-Za-z_][\w.-]*)
    |(?P<literal>"(?:[^"\\\n]|{_ESCAPE})*")
    |(?P<characters>\[(?:[^\]\\\n]|{_ESCAPE})*\])
    |(?P<repeat>[*+?]|\{{\s*[0-9]+\s*(?:,\s*[0-9]*\s*)?\}})
    |(?P<mark>[|().])""",
    re.VERBOSE | re.ASCII,
)
_CHARACTER = re.compile(rf"{_ESCAPE}|[^\\]", re.DOTALL)
_CONTROLS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "0": 0, "e": 27}


def is_ebnf(text: str) -> bool:
    """Return whether a grammar is written in EBNF: a line defines a rule with `::=`."""
    return _RULE.search(text) is not None


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


@dataclass(slots=True)
class _Rule:
    """A rule, and the tokens of its alternatives."""

    start: int
    tokens: list[_Token] = field(default_factory=list)
    name: str = ""  # in Lark


def ebnf_to_lark(text: str) -> str:
    """Return a Lark grammar for the same texts. Raises GrammarError with the line and the column."""
    return _Translation(text).lark()


class _Translation:
    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = self._read()

    def lark(self) -> str:
        rules = self._rules
        if "root" not in rules:
            raise GrammarError('EBNF must define a rule named "root", where every output begins')
        for rule in rules.values():
            for token in rule.tokens:
                if token.kind == "name" and token.text not in rules:
                    self._fail(token.start, f"the rule {token.text} is not defined")
        recursive = self._is_recursive()
        for i, rule in enumerate(rules.values()):
            rule.name = f"r{i}" if recursive else f"R{i}"  # Lark's terminals have capital letters
        lines = [f"start: {rules['root'].name}"]
        lines += (f"{rule.name}: {self._body(rule, recursive)}" for rule in rules.values())
        return "\n".join(lines)

    def _read(self) -> dict[str, _Rule]:
        """Return the rules by name, after a check of their syntax."""
        rules: dict[str, _Rule] = {}
        rule = None
        position, text = 0, self._text
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                self._fail(position, f"unexpected {_excerpt(text, position)}")
            position, kind = found.end(), str(found.lastgroup)
            if found["define"]:
                if found["defined"] in rules:
                    self._fail(found.start(), f"the rule {found['defined']} is defined twice")
                rule = rules[found["defined"]] = _Rule(found.start())
            elif kind != "space":
                if rule is None:
                    self._fail(
                        found.start(), f"expected a rule, got {_excerpt(text, found.start())}"
                    )
                rule.tokens.append(_Token(kind, found[0], found.start()))
        for rule in rules.values():
            self._check(rule)
        return rules

    def _check(self, rule: _Rule) -> None:
        """Check parentheses, and that each repetition follows an element."""
        opened: list[int] = []
        is_element = False
        for token in rule.tokens:
            if token.text == "(":
                opened.append(token.start)
                if len(opened) > MAX_DEPTH:
                    self._fail(token.start, f"groups may be nested {MAX_DEPTH} deep")
            elif token.text == ")" and not opened:
                self._fail(token.start, "this ) closes no group")
            elif token.text == ")":
                opened.pop()
            elif token.kind == "repeat" and not is_element:
                self._fail(
                    token.start,
                    f"{token.text} must follow an element: put repetitions of repetitions into ( )",
                )
            is_element = token.kind not in ("mark", "repeat") or token.text in (")", ".")
        if opened:
            self._fail(opened[-1], "this ( is not closed")

    def _is_recursive(self) -> bool:
        """Return whether a rule refers to itself, directly or through others."""
        used = {
            name: {token.text for token in rule.tokens if token.kind == "name"}
            for name, rule in self._rules.items()
        }
        try:
            TopologicalSorter(used).prepare()
        except CycleError:
            return True
        return False

    def _body(self, rule: _Rule, single: bool) -> str:
        """Return the right side of a rule. `single`: every lexeme has one character."""
        parts: list[str] = []
        is_empty = True  # the alternative so far
        for token in rule.tokens:
            if is_empty and token.text in ("|", ")") and token.kind == "mark":
                parts.append('""')
            parts.append(self._part(token, single))
            is_empty = token.kind == "mark" and token.text in "|("
        return " ".join([*parts, '""'] if is_empty else parts)

    def _part(self, token: _Token, single: bool) -> str:
        match token.kind:
            case "name":
                return self._rules[token.text].name
            case "literal":
                return self._literal(token, single)
            case "characters":
                return self._characters(token)
            case "repeat":
                return self._repeat(token)
        return "/(?s:.)/" if token.text == "." else token.text

    def _literal(self, token: _Token, single: bool) -> str:
        text = "".join(chr(code) for code, _ in self._codes(token))
        if single and len(text) > 1:
            return f"({' '.join(map(json.dumps, text))})"
        return json.dumps(text)

    def _characters(self, token: _Token) -> str:
        """Return a class of characters as an expression; a `-` at either end is a character."""
        codes = self._codes(token)
        negated = bool(codes) and codes[0] == (ord("^"), False)
        codes = codes[negated:]
        dash = (ord("-"), False)
        parts: list[str] = []
        i = 0
        while i < len(codes):
            first, last = codes[i][0], codes[i][0]
            if i + 2 < len(codes) and codes[i + 1] == dash:
                last = codes[i + 2][0]
                i += 2
            i += 1
            if last < first:
                self._fail(token.start, f"{token.text[:40]} has a range that ends before it begins")
            parts.append(rf"\x{{{first:x}}}-\x{{{last:x}}}")
        if not parts:
            if negated:
                return "/(?s:.)/"
            self._fail(token.start, "[] matches no character")
        return f"/[{'^' * negated}{''.join(parts)}]/"

    def _repeat(self, token: _Token) -> str:
        if token.text in "*+?":
            return token.text
        least, comma, most = re.sub(r"\s", "", token.text[1:-1]).partition(",")
        for count in (least, most):
            if len(count) > 9 or int(count or 0) > MAX_REPEATS:
                self._fail(token.start, f"at most {MAX_REPEATS:,} repetitions, got {count[:20]}")
        if int((most if comma else least) or 1) == 0:
            self._fail(token.start, f"{token.text} repeats nothing: leave the element out")
        if most and int(most) < int(least):
            self._fail(token.start, f"{token.text} has a maximum below its minimum")
        return f"{{{least},{most if comma else least}}}"

    def _codes(self, token: _Token) -> list[tuple[int, bool]]:
        """Return the code points between the quotes or brackets, and which were escaped."""
        codes = []
        for found in _CHARACTER.finditer(token.text[1:-1]):
            one = found[0]
            escaped = len(one) > 1
            code = ord(one[-1])
            if escaped:
                code = int(one[2:], 16) if len(one) > 2 else _CONTROLS.get(one[1], code)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._fail(token.start + 1 + found.start(), f"{one} is not a Unicode character")
            codes.append((code, escaped))
        return codes

    def _fail(self, position: int, reason: str) -> NoReturn:
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        raise GrammarError(f"line {line}, column {column}: {reason}")


def _excerpt(text: str, position: int) -> str:
    return text[position : position + 20].partition("\n")[0] or "a line break"
