"""The event vocabulary of the browser is generated from the Python structs.

`model/vocabulary.ts` is a table with which the browser checks the lines of a log and from which
`model/events.ts` computes the types of events; `cluster/` has the same for cluster logs. To renew both:
`pytest tests/visualizer/test_event_types.py --update-snapshots`.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest

from engine.cluster import events as cluster
from engine.core.log import vocabulary
from tests.visualizer.test_golden_fold import node
from visualizer.html import MODULE
from visualizer.indexed import facts
from visualizer.indexed.index_file import checksum_of_types

FOLDER = MODULE.parents[1] / "frontend" / "src"
HEADER = """\
/**
 * The fields of each kind of event and of each struct in it, with their types.
 * Generated from `%s`. Do not edit;
 * `pytest tests/visualizer/test_event_types.py --update-snapshots` writes it.
 */
"""
EVENTS = vocabulary.AnyEvent.__args__
CLUSTER_EVENTS = cluster.AnyClusterEvent.__args__
ROWS = (vocabulary.ScheduledRow, vocabulary.Blocked, vocabulary.TokenRow)
STATE = (
    vocabulary.RequestState,
    vocabulary.NodeRecord,
    vocabulary.HoldState,
    vocabulary.KeyframeState,
)


LETTERS = {
    inspect.IntType: "i",
    inspect.FloatType: "n",
    inspect.StrType: "s",
    inspect.BoolType: "b",
    inspect.AnyType: "a",
}


def name_of(struct: type) -> str:
    """The name of a struct in the table: an event's tag, another struct's name."""
    return str(struct.__struct_config__.tag or struct.__name__)


def code_of(kind: inspect.Type) -> str:
    """A type in the notation that `checkerOf` in `model/log.ts` reads."""
    if isinstance(kind, inspect.StructType):
        return f"<{name_of(kind.cls)}"
    if isinstance(kind, inspect.LiteralType):
        return "'" + "|".join(map(str, kind.values))
    if isinstance(kind, inspect.UnionType):
        if len(kind.types) == len(EVENTS):
            return "*"
        known = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        if len(known) < len(kind.types):
            return f"?{code_of(known[0])}"
        assert {type(one) for one in known} == {inspect.IntType, inspect.FloatType}
        return "n"
    if isinstance(kind, inspect.ListType):
        return f"[{code_of(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return f"{{{code_of(kind.value_type)}"
    if isinstance(kind, inspect.TupleType):
        return "(" + ",".join(map(code_of, kind.item_types))
    return LETTERS[type(kind)]


def fields_of(struct: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def table(source: str, structs: list[type], schemas: dict[str, int]) -> str:
    """The fields of structs in the notation of `code_of`."""
    lines = [
        HEADER % source,
        *(f"export const {name} = {value};" for name, value in schemas.items()),
        *[""] * bool(schemas),
        "export const VOCABULARY = {",
    ]
    for struct in structs:
        fields = (
            f"{one.encode_name}{'?' * (not one.required)}:{code_of(one.type)}"
            for one in fields_of(struct)
        )
        text = "#" * struct.__struct_config__.array_like + " ".join(fields)
        lines.append(f'  {name_of(struct)}: "{text}",')
    return "\n".join([*lines, "} as const;", ""])


def generated() -> dict[str, str]:
    """The generated files."""
    schemas = {
        "SCHEMA": vocabulary.SCHEMA_VERSION,
        "KEYFRAME_SCHEMA": vocabulary.KEYFRAME_SCHEMA_VERSION,
        "INDEXED": checksum_of_types(),
    }
    ours = {"SCHEMA": cluster.CLUSTER_SCHEMA_VERSION}
    structs = [*ROWS, *STATE, *EVENTS]
    return {
        "model/vocabulary.ts": table("engine/core/log/vocabulary.py", structs, schemas),
        "model/facts.ts": table(
            "visualizer/indexed/facts.py",
            [
                facts.Segment,
                facts.LiveRequest,
                facts.LiveNode,
                vocabulary.Blocked,
                *facts.AnyFact.__args__,
            ],
            {},
        ),
        "cluster/vocabulary.ts": table("engine/cluster/events.py", [*CLUSTER_EVENTS], ours),
    }


def test_the_browser_has_the_vocabulary_of_the_structs(pytestconfig):
    for name, text in generated().items():
        if pytestconfig.getoption("--update-snapshots"):
            (FOLDER / name).write_text(text, "utf-8")
        assert (FOLDER / name).read_text("utf-8") == text


def sample(kind: inspect.Type) -> Any:
    """A JSON value of a type, with an item in each list, and all fields."""
    match kind:
        case inspect.StructType():
            values = {one.encode_name: sample(one.type) for one in kind.fields}
            if kind.array_like:
                return list(values.values())
            return {kind.tag_field: kind.tag, **values} if kind.tag_field else values
        case inspect.ListType():
            return [sample(kind.item_type)]
        case inspect.TupleType():
            return [sample(one) for one in kind.item_types]
        case inspect.DictType():
            return {"key": sample(kind.value_type)}
        case inspect.UnionType(types=types) if len(types) == len(EVENTS):
            return sample(inspect.type_info(vocabulary.Admitted))
        case inspect.UnionType():
            return sample(next(one for one in kind.types if not isinstance(one, inspect.NoneType)))
        case inspect.LiteralType():
            return kind.values[0]
        case _:
            return {"i": 1, "n": 1.5, "s": "x", "b": True, "a": None}[LETTERS[type(kind)]]


def variants(value: Any) -> Iterator[Any]:
    """The value with each part replaced by something else, removed, or with one more beside it."""
    yield from (None, 7, 1.5, "x", True, [], {}, ["x"], [7], [1.5], [[7]], [None], {"key": 7})
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: one for name, one in value.items() if name != key}
            yield from (value | {key: other} for other in variants(part))
    if isinstance(value, list):
        yield [*value, None]
        for at, part in enumerate(value):
            yield value[:at]
            yield from ([*value[:at], other, *value[at + 1 :]] for other in variants(part))


@pytest.mark.parametrize("kind", ["log", "cluster"])
def test_both_languages_refuse_the_same_wrong_events(kind, tmp_path):
    union = vocabulary.AnyEvent if kind == "log" else cluster.AnyClusterEvent
    decoder = msgspec.json.Decoder(union)
    whole = [sample(inspect.type_info(event)) for event in union.__args__]
    lines = [json.dumps(event) for event in whole]
    lines += dict.fromkeys(json.dumps(other) for event in whole for other in variants(event))
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    theirs = json.loads(node("verdicts.js", kind, tmp_path / "lines.jsonl"))
    assert len(theirs) == len(lines) > 600
    assert theirs[: len(whole)] == [None] * len(whole)
    for line, problem in zip(lines, theirs, strict=True):
        try:
            decoder.decode(line)
        except msgspec.ValidationError as error:
            assert problem, (line, str(error))
        else:
            assert problem is None, line
