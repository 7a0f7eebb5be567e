"""The event vocabulary of the browser, generated from the Python structs.

`model/vocabulary.ts` is a table with which the browser checks the lines of a log and from which
`model/events.ts` computes the types of events; `cluster/` has the same for cluster logs.
"""

from collections.abc import Iterable
from typing import get_args

import msgspec
from msgspec import inspect

from engine.cluster import events as cluster
from engine.core.log import vocabulary
from visualizer.indexed import facts
from visualizer.indexed.index_file import checksum_of_types

_HEADER = """\
/**
 * The fields of each kind of event and of each struct in it, with their types.
 * Generated from `%s`. Do not edit;
 * `make tables` writes it.
 */
"""
_EVENTS = get_args(vocabulary.AnyEvent)
_ROWS = (vocabulary.ScheduledRow, vocabulary.Blocked, vocabulary.TokenRow)
_STATE = (
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


def _name_of(struct: type[msgspec.Struct]) -> str:
    """The name of a struct in the table: an event's tag, another struct's name."""
    return str(struct.__struct_config__.tag or struct.__name__)


def _code_of(kind: inspect.Type) -> str:
    """A type in the notation that `checkerOf` in `model/log.ts` reads."""
    match kind:
        case inspect.StructType():
            code = f"<{_name_of(kind.cls)}"
        case inspect.LiteralType():
            code = "'" + "|".join(map(str, kind.values))
        case inspect.UnionType(types=types) if len(types) == len(_EVENTS):
            code = "*"
        case inspect.UnionType(types=types):
            known = [one for one in types if not isinstance(one, inspect.NoneType)]
            code = f"?{_code_of(known[0])}" if len(known) < len(types) else "n"  # int or float
        case inspect.ListType():
            code = f"[{_code_of(kind.item_type)}"
        case inspect.DictType():
            code = f"{{{_code_of(kind.value_type)}"
        case inspect.TupleType():
            code = "(" + ",".join(map(_code_of, kind.item_types))
        case _:
            code = LETTERS[type(kind)]
    return code


# Facts that only Python reads. Their kinds have a number, as all have.
_UNREAD = (facts.Name, facts.Plans)


def _fields_of(struct: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _table(source: str, structs: Iterable[type[msgspec.Struct]], schemas: dict[str, int]) -> str:
    """The fields of structs in the notation of `_code_of`."""
    lines = [
        _HEADER % source,
        *(f"export const {name} = {value};" for name, value in schemas.items()),
        *[""] * bool(schemas),
        "export const VOCABULARY = {",
    ]
    for struct in structs:
        fields = (
            f"{one.encode_name}{'?' * (not one.required)}:{_code_of(one.type)}"
            for one in _fields_of(struct)
            if struct not in _UNREAD
        )
        text = "#" * struct.__struct_config__.array_like + " ".join(fields)
        lines.append(f'  {_name_of(struct)}: "{text}",')
    return "\n".join([*lines, "} as const;", ""])


def of_logs() -> str:
    """Return `model/vocabulary.ts`."""
    schemas = {
        "SCHEMA": vocabulary.SCHEMA_VERSION,
        "KEYFRAME_SCHEMA": vocabulary.KEYFRAME_SCHEMA_VERSION,
        "INDEXED": checksum_of_types(),
    }
    return _table("engine/core/log/vocabulary.py", (*_ROWS, *_STATE, *_EVENTS), schemas)


def of_facts() -> str:
    """Return `model/facts.ts`."""
    structs = (facts.Segment, facts.LiveRequest, facts.LiveNode, vocabulary.Blocked)
    structs += get_args(facts.AnyFact)
    return _table("visualizer/indexed/facts.py", structs, {})


def of_clusters() -> str:
    """Return `cluster/vocabulary.ts`."""
    schema = {"SCHEMA": cluster.CLUSTER_SCHEMA_VERSION}
    return _table("engine/cluster/events.py", get_args(cluster.AnyClusterEvent), schema)
