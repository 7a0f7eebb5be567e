"""EBNF, as vLLM's clients write it, and errors that name the client's own line."""

import pytest

from engine.extensions.grammars.grammar_error import GrammarError
from tests.engine.random_outputs import allows, compiled
from tests.facts import raises_naming

JSON = r"""
root   ::= object   # any JSON object
object ::= "{" ws (pair ("," ws pair)*)? "}" ws
pair   ::= string ":" ws value
value  ::= string | object | "[" (value ("," ws value)*)? "]" |
           [0-9]+ | "true"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
ws     ::= [ \n\t]*
"""


@pytest.mark.parametrize(
    ("grammar", "allowed", "forbidden"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["yesno", ""]),
        (JSON, ['{"a": [1,{"b":"c\\n"}], "d": true}', "{}"], ["{a}", '{"a": "\n"}']),
        ('root ::= [a-z]* "end"', ["weekend"], ["weeken"]),
        ('root ::= "(" root ")" | word "end"\nword ::= [a-z]*', ["((weekend))"], ["(weeken)"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
        (
            'root ::= item{2,3} |\n  "x"\n  "y"  # two\nitem ::= [^"a\\\\\\]-]',
            ["bcd", "xy"],
            ["b", "a-"],
        ),
        ('root ::= "a"{2} "b"{1,} "c"{0,1} "d"? "e"+', ["aabe", "aabbcdee"], ["abe", "aabccde"]),
        (r'root ::= "\u00e9\x41\U0001f989\"\\\n\t" [\]\-/] [-x] [x-]', ['éA🦉"\\\n\t/-x'], ["éA"]),
        ('root ::= | "a" ("" | "b")', ["", "a", "ab"], ["b"]),
        ('root ::= ("a"*){2} .', ["aab", "é"], [""]),
        ('root ::= a-b a_b a.b\na-b ::= "1"\na_b ::= "2"\na.b ::= "3"', ["123"], ["111"]),
        ('root::="a"#"b"', ["a"], ["ab"]),
        ("root\n  ::=\n  'x'".replace("'", '"'), ["x"], ["y"]),
        ('start: "::=" "b"', ["::=b"], ["b"]),  # Lark
    ],
)
def test_the_grammar_allows_the_same_texts(grammar, allowed, forbidden):
    assert [text for text in allowed if not allows(grammar, text, "grammar")] == []
    assert [text for text in forbidden if allows(grammar, text, "grammar")] == []


@pytest.mark.parametrize(
    ("grammar", "facts"),
    [
        ('root ::= "a"\n  | word', ("line 2, column 5", "word")),
        ('root ::= "a"\n\nword ::= "b\nroot2 ::= "c"', ("line 3, column 10", '"b')),
        ('root ::= ("a"', ("line 1, column 10", "(")),
        ('root ::= "a" )', ("line 1, column 14", ")")),
        ('root ::= "a"\nroot ::= "b"', ("line 2, column 1", "root")),
        ('rot ::= "a"', ("root",)),
        ("root ::= *", ("line 1, column 10", "*")),
        ("# a\nroot ::= 'a'", ("line 2, column 10", "'a'")),
        ('root ::= [z-a] "b"', ("line 1, column 10", "[z-a]")),
        ("root ::= []", ("line 1, column 10", "[]")),
        (r'root ::= "a\ud800"', ("line 1, column 12", r"\ud800")),
        (r'root ::= "\xg"', ("line 1, column 10",)),
        ('root ::= "a"{3,2}', ("line 1, column 13", "{3,2}")),
        ('root ::= "a"{99999}', ("line 1, column 13", "99999", "10,000")),
        ('root ::= "a"{0}', ("line 1, column 13", "{0}")),
        ('root ::= "a"*+', ("line 1, column 14",)),
        ('"a"\nroot ::= "b"', ("line 1, column 1", "expected a rule")),
        ('root ::= (="a") "b"', ("line 1, column 11",)),
        ('root ::= TagDispatch(("a", b))', ("line 1, column 26", "b")),
        ("root ::= " + "(" * 300 + '"a"' + ")" * 300, ("line 1, column 110", "100")),
    ],
)
def test_an_error_names_the_line_and_column_of_the_client_s_text(grammar, facts):
    with raises_naming(GrammarError, *facts):
        compiled(grammar, "grammar")
