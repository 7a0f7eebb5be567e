"""Questions that need a function which the client offers, and questions that need none of them.

The model reads the functions before the first question, writes a call, reads its result and answers
from it. Functions are either written by hand (``data/tools.toml``) or put together from a verb and a
noun, so that there are too many to remember: the model has to compare the question with the names.
"""

import json
from random import Random
from typing import Any, NamedTuple

from engine.training import talk, values, words
from engine.training.documents import (
    Piece,
    Tools,
    Turn,
    function_call,
    function_result,
)
from engine.training.values import Value

_DATA = words.load("tools")
_LOOKUPS, _ACTIONS, _NEXT, _OTHER = (
    _DATA[name] for name in ("lookups", "actions", "next", "other")
)


class Function(NamedTuple):
    """A function, and how to ask for it.

    name, does   its name and its description
    takes        each parameter's name and kind; the first is the subject of the question
    also         the same for optional parameters
    ask, say     questions, and the answer; slots in braces are kinds
    gives        kinds of the values that it returns
    only         the values that a parameter may have, for some parameters
    """

    name: str
    does: str
    takes: dict[str, str]
    also: dict[str, str]
    ask: list[str]
    gives: list[str]
    say: str
    only: dict[str, list[str]] = {}  # noqa: RUF012 (never changed)

    def schema(self) -> dict[str, Any]:
        """Return the tool as a client of OpenAI's API sends it."""
        properties = {name: values.schema(kind) for name, kind in (self.takes | self.also).items()}
        for name, options in self.only.items():
            properties[name] = {"type": "string", "enum": options}
        parameters = {
            "type": "object",
            "properties": properties,
            "required": list(self.takes),
        }
        function = {"name": self.name, "description": self.does, "parameters": parameters}
        if not self.does:
            del function["description"]
        return {"type": "function", "function": function}


class Asked(NamedTuple):
    """A question for a function: its text, the arguments, and the text of each value."""

    text: str
    arguments: dict[str, Any]
    slots: dict[str, str]


def function(rng: Random, *, new: bool = False) -> Function:
    """Draw a function; with ``new``, one that training keeps out."""
    make = rng.choices((_written, _lookup, _action), (55, 27, 18))[0]
    return make(rng, new)


def _written(rng: Random, new: bool) -> Function:
    tool = rng.choice([one for one in _DATA["tool"] if one.get("held_out", False) == new])
    keys: set[str] = set()
    takes = {_key(rng, kind, keys): kind for kind in tool["takes"]}
    also = {_key(rng, kind, keys): kind for kind in tool.get("also", ()) if rng.random() < 0.4}
    allowed = [*takes.values(), *also.values()]
    others = [kind for kind in tool.get("also", ()) if kind not in allowed]
    ask = [one for one in tool["ask"] if not any(f"{{{kind}}}" in one for kind in others)]
    does = rng.choice(tool["does"]) if rng.random() < 0.88 else ""
    name, say = rng.choice(tool["names"]), rng.choice(tool["say"])
    return Function(name, does, takes, also, ask, tool["gives"], say)


def _key(rng: Random, kind: str, taken: set[str]) -> str:
    options = [key for key in values.KINDS[kind]["keys"] if key not in taken] or [kind]
    key: str = options[0] if rng.random() < 0.5 else rng.choice(options)
    taken.add(key)
    return key


def _lookup(rng: Random, new: bool) -> Function:
    while True:
        kind = rng.choice(("city", "person", "item", "code", "title", "country"))
        noun = rng.choice(_LOOKUPS[kind])
        name = noun.replace(" ", "_")
        if values.held_out(name) == new:
            break
    key = _key(rng, kind, set())
    slots = {"n": noun, "k": key, "v": f"{{{kind}}}"}
    asks = _LOOKUPS["ask_held_out" if new else "ask"]
    gives = rng.choice(("quantity", "word", "person", "price", "color", "date", "code", "decimal"))
    while gives == kind:
        gives = rng.choice(("quantity", "word", "price", "color", "date"))
    say = _LOOKUPS["say"][0].format(**slots, r=f"{{{gives}}}")
    return Function(
        rng.choice(_LOOKUPS["heads"]) + name,
        rng.choice(_LOOKUPS["does"]).format(**slots),
        {key: kind},
        {},
        [_capital(one.format(**slots)) for one in asks],
        [gives],
        say,
    )


def _action(rng: Random, new: bool) -> Function:
    while True:
        verb, noun = rng.choice(_ACTIONS["verbs"]), rng.choice(tuple(_ACTIONS["nouns"]))
        name = f"{verb}_{noun}"
        if values.held_out(name) == new:
            break
    kind = _ACTIONS["nouns"][noun]
    key = _key(rng, kind, set())
    slots = {"v": verb, "V": verb.capitalize(), "n": noun, "k": key, "x": f"{{{kind}}}"}
    asks = _ACTIONS["ask_held_out" if new else "ask"]
    return Function(
        name,
        rng.choice(_ACTIONS["does"]).format(**slots),
        {key: kind},
        {},
        [one.format(**slots) for one in asks],
        [],
        f"Done. I have used {verb} {noun} for {{{kind}}}.",
    )


def ask(rng: Random, about: Function, *, new: bool = False) -> Asked:
    """Ask for a function with values; an optional parameter only has one if the question names it."""
    template = rng.choice(about.ask)
    arguments: dict[str, Any] = {}
    slots: dict[str, str] = {}
    for name, kind in (about.takes | about.also).items():
        if name in about.takes or f"{{{kind}}}" in template:
            value = _unlike(rng, kind, slots, new)
            arguments[name], slots[kind] = value.json, value.text
    return Asked(_capital(template.format(**slots)), arguments, slots)


def _unlike(rng: Random, kind: str, slots: dict[str, str], new: bool) -> Value:
    value = values.draw(rng, kind, new=new)
    while value.text in slots.values():
        value = values.draw(rng, kind, new=new)
    return value


def _capital(text: str) -> str:
    return text if text.startswith("{") else text[0].upper() + text[1:]


def answered(rng: Random, about: Function, asked: Asked) -> tuple[str, str]:
    """Return what the function gives back and the answer that repeats it."""
    if rng.random() < 0.05:
        error = rng.choice(_OTHER["failed"])
        result = error if rng.random() < 0.5 else json.dumps({"error": error})
        return result, rng.choice(_OTHER["failed_say"]).format(e=error)
    slots = dict(asked.slots)
    given: dict[str, Any] = {}
    for kind in about.gives:
        value = _unlike(rng, kind, slots, False)
        slots[kind] = value.text
        given[_key(rng, kind, set(given))] = value.json
    answer = _capital(about.say.format(**slots))
    if not given:
        return rng.choice(_OTHER["done"]), answer
    if rng.random() < 0.35:
        return ", ".join(slots[kind] for kind in about.gives), answer
    if rng.random() < 0.2:
        given = dict(list(asked.arguments.items())[:1]) | given
    return json.dumps(given), answer


def offer(rng: Random, needed: Function | None, *, new: bool = False) -> Tools:
    """Return the tools of a request in random order, with ``needed`` among them.

    With ``new``, the others are functions that training keeps out, too.
    """
    functions = {needed.name: needed} if needed else {}
    for _ in range(rng.choices((0, 1, 2, 3, 5), (26, 38, 20, 12, 4))[0] + (needed is None)):
        other = function(rng, new=new)
        if needed and (other.name in needed.name or needed.name in other.name):
            continue
        if needed and (other.does == needed.does or other.ask == needed.ask):
            continue
        functions.setdefault(other.name, other)
    shuffled = list(functions.values())
    rng.shuffle(shuffled)
    return Tools([one.schema() for one in shuffled])


def turns(rng: Random) -> tuple[Tools, list[Turn]]:
    """Make a chat in which the model calls a function, with the tools that the client offers."""
    about = function(rng)
    asked = ask(rng, about)
    repeats = bool(about.takes)
    texts = [name for name, value in asked.arguments.items() if isinstance(value, str)]
    if texts and rng.random() < 0.12:
        about, repeats = _restricted(rng, about, asked, rng.choice(texts)), False
    tools = offer(rng, about)
    asked = asked._replace(text=talk.dress_lightly(rng, asked.text))
    form = rng.random()
    if form < 0.07:  # its function is not there
        other = offer(rng, None)
        if all(tool["function"]["name"] != about.name for tool in other.schemas):
            return other, [Turn(asked.text, rng.choice(_OTHER["missing"]))]
    if form < 0.32:
        return tools, [_forced(about, asked, named=form < 0.18)]
    result: list[Turn] = []
    blocks = rng.choices((1, 2, 3), (70, 22, 8))[0] if repeats else 1
    first = next(iter(asked.slots.values()), "")
    for number in range(blocks):
        if number == 0 and repeats and rng.random() < 0.08 and len(about.takes) == 1:
            result += _two_calls(rng, about)
        else:
            given, answer = answered(rng, about, asked)
            result.append(Turn(asked.text, function_call(about.name, asked.arguments)))
            result.append(Turn(function_result(given), answer))
        if repeats:
            asked = _again(rng, about, asked)
    if blocks > 1 and rng.random() < 0.3 and len(result) >= 4 and first in result[0].question:
        result.append(Turn(rng.choice(_NEXT["first"]), _NEXT["first_say"].format(v=first)))
    return tools, result


def _restricted(rng: Random, about: Function, asked: Asked, name: str) -> Function:
    """Let a parameter have only a few values, among them the one in the question."""
    kind = (about.takes | about.also)[name]
    options = {asked.slots[kind], *(values.draw(rng, kind).text for _ in range(rng.randint(1, 2)))}
    if "enum" in values.KINDS[kind]:
        return about
    return about._replace(only={name: rng.sample(sorted(options), len(options))})


def _again(rng: Random, about: Function, before: Asked) -> Asked:
    """Ask for the same function with another subject, and the same other arguments."""
    name, kind = next(iter(about.takes.items()))
    value = _unlike(rng, kind, before.slots, False)
    short = rng.choice(_NEXT["city"] if kind == "city" else _NEXT["ask"])
    if rng.random() < 0.25:
        return ask(rng, about)
    return Asked(
        short.format(v=value.text),
        before.arguments | {name: value.json},
        before.slots | {kind: value.text},
    )


def _two_calls(rng: Random, about: Function) -> list[Turn]:
    """Ask for two subjects at once; both calls come in one turn, and both results in the next."""
    one = ask(rng, about)
    name, kind = next(iter(about.takes.items()))
    other = _unlike(rng, kind, one.slots, False)
    both = one.text.replace(one.slots[kind], f"{one.slots[kind]} and {other.text}", 1)
    second = one._replace(
        arguments=one.arguments | {name: other.json}, slots=one.slots | {kind: other.text}
    )
    calls = "".join(function_call(about.name, each.arguments) for each in (one, second))
    given = [answered(rng, about, each) for each in (one, second)]
    results = "".join(function_result(result) for result, _ in given)
    return [Turn(both, calls), Turn(results, " ".join(answer for _, answer in given))]


def _forced(about: Function, asked: Asked, *, named: bool) -> Turn:
    """Answer as a grammar forces it: names of keys and brackets are given, values are learned.

    ``tool_choice`` "required" forces a list of calls, the name of a function only its arguments.
    """
    body = list(json_pieces(asked.arguments))
    if named:
        return Turn(asked.text, "", parts=tuple(body))
    head = [Piece('[{"name": "', False), Piece(f'{about.name}",', True)]
    head.append(Piece(' "parameters": ', False))
    body[-1] = Piece(body[-1].text + "}]", True)  # the model decides against a second call
    return Turn(asked.text, "", parts=(*head, *body))


def json_pieces(fields: dict[str, Any], *, tight: bool = False) -> list[Piece]:
    """Return an object of JSON in pieces, of which only the values are learned.

    The comma or bracket after a value is part of it, because the model decides where a value ends. A
    piece begins where a token does. ``tight`` leaves out the spaces.
    """
    if not fields:
        return [Piece("{}", False)]
    space = "" if tight else " "
    pieces: list[Piece] = []
    before = '{"'
    for number, (name, value) in enumerate(fields.items(), 1):
        text = json.dumps(value, separators=(f",{space}", f":{space}"))
        opening = next(mark for mark in ('["', '"', "") if text.startswith(mark))
        gap = "" if text[0].isalpha() else space  # " true" is one token, " 4" is two
        comma = ',"' if tight else ","
        written = text[len(opening) :] + (comma if number < len(fields) else "}")
        pieces.append(Piece(f'{before}{name}":{gap}{opening}', False))
        pieces.append(Piece((space if gap != space else "") + written, True))
        before = "" if tight else ' "'
    return pieces
