"""`model/events.d.ts` gives TypeScript the event vocabulary; it is generated from the Python structs.

To renew it: `pytest tests/visualizer/test_event_types.py --update-snapshots`.
"""

import msgspec.inspect as inspect

from engine.core.log import vocabulary
from visualizer.html import MODULE

FILE = MODULE.parents[1] / "frontend" / "src" / "model" / "events.d.ts"
HEADER = """\
/**
 * The event vocabulary, generated from `engine/core/log/vocabulary.py`. Do not edit;
 * `pytest tests/visualizer/test_event_types.py --update-snapshots` writes it.
 */
"""
PRIMITIVES = {
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "any",
}


def type_of(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StructType):
        return kind.cls.__name__
    if isinstance(kind, inspect.LiteralType):
        return " | ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.UnionType):
        return " | ".join(dict.fromkeys(map(type_of, kind.types)))
    if isinstance(kind, inspect.ListType):
        item = type_of(kind.item_type)
        return f"({item})[]" if " " in item and not item.startswith("[") else f"{item}[]"
    if isinstance(kind, inspect.TupleType):
        return f"[{', '.join(map(type_of, kind.item_types))}]"
    if isinstance(kind, inspect.DictType):
        return f"Record<{type_of(kind.key_type)}, {type_of(kind.value_type)}>"
    return PRIMITIVES[type(kind)]


def declaration(struct: type) -> str:
    """A tuple type for a row, an interface for an event."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    fields = [f"{f.name}{'' if f.required else '?'}: {type_of(f.type)}" for f in info.fields]
    if info.array_like:
        return f"export type {struct.__name__} = [{', '.join(fields)}];\n"
    tag = [f'type: "{info.tag}"'] if info.tag else []
    lines = "".join(f"  {field};\n" for field in [*tag, *fields])
    return f"export interface {struct.__name__} {{\n{lines}}}\n"


def rendered() -> str:
    rows = [vocabulary.ScheduledRow, vocabulary.Blocked, vocabulary.TokenRow]
    state = [
        vocabulary.RequestState,
        vocabulary.NodeRecord,
        vocabulary.HoldState,
        vocabulary.KeyframeState,
    ]
    events = vocabulary.AnyEvent.__args__
    union = (
        "export type LogEvent =" + "".join(f"\n  | {event.__name__}" for event in events) + ";\n"
    )
    return "\n".join([HEADER, *map(declaration, [*rows, *state, *events]), union])


def test_the_types_are_those_of_the_structs(pytestconfig):
    if pytestconfig.getoption("--update-snapshots"):
        FILE.write_text(rendered(), "utf-8")
    assert FILE.read_text("utf-8") == rendered()
